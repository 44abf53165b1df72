// Which shard of a kvd owns a key: arithmetic without a seed, so that clients can do it, too, and
// ask that shard straight away (docs/kvd.md).
//
//     owner = CRC-32C(key) * shard_count / 2^32
//
// Shard number i of the configured list owns the i-th part of the range of hashes. The cache of a
// shard hashes its keys once more, with a seed: who knows the owner of keys, knows no bucket.
//
// Threads: any. Nothing is allocated.
#pragma once

#include <cstdint>
#include <string_view>

#include "platform/assert.h"

namespace bedplate::kvd {

// CRC-32C (Castagnoli: RFC 3720, appendix B.4) of `key`; of "123456789" it is 0xe3069283. Cost: an
// instruction for 8 bytes where the processor has SSE 4.2, else as crc32c_by_table().
uint32_t crc32c(std::string_view key) noexcept;
// The same, on any processor. Cost: a load for each byte.
uint32_t crc32c_by_table(std::string_view key) noexcept;

// Requires: shard_count > 0.
inline uint32_t owner_of(std::string_view key, uint32_t shard_count) noexcept {
  BP_DCHECK(shard_count > 0);
  return static_cast<uint32_t>(uint64_t{crc32c(key)} * shard_count >> 32);
}

}  // namespace bedplate::kvd
