// The list of pages (PRP list) of a command's data (NVM Express Base Specification 1.4, 4.3).
//
// The I/O virtual address of pool memory is its address in this process (transport/vfio/), so the
// list holds pointers. A list of one page is enough for the largest transfer at any alignment, so
// lists are never chained.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "platform/assert.h"
#include "transport/nvme/nvme_wire.h"

namespace bedplate {

inline constexpr uint64_t kNvmePageBytes = 4096;
inline constexpr uint64_t kNvmeTransferBytesMax =
    kNvmePageBytes / sizeof(uint64_t) * kNvmePageBytes;

// Requires: `memory` is aligned to 4 bytes; `bytes` is 1 to kNvmeTransferBytesMax; `list` is an
// aligned page that only this command uses until it has completed.
inline void set_pages(nvme::Command& command, const std::byte* memory, uint64_t bytes,
                      std::byte* list) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  BP_DCHECK(address % 4 == 0 && bytes > 0 && bytes <= kNvmeTransferBytesMax);
  const uint64_t first_bytes = std::min(bytes, kNvmePageBytes - address % kNvmePageBytes);
  command.prp1 = address;
  uint64_t page = address + first_bytes;
  const uint64_t end = address + bytes;
  if (end - page <= kNvmePageBytes) {
    command.prp2 = page == end ? 0 : page;
    return;
  }
  command.prp2 = reinterpret_cast<uintptr_t>(list);
  for (auto* entry = reinterpret_cast<uint64_t*>(list); page < end; page += kNvmePageBytes) {
    *entry++ = page;
  }
}

}  // namespace bedplate
