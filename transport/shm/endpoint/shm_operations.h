// Puts, gets and atomics between members.
//
// If this process maps the target's memory with the rights that the operation needs, it does the
// operation itself: a copy, or an atomic instruction. For puts and gets in other memory of the
// target, it uses single copy (transport/single_copy), if the machine supports that. The target
// does all other operations when it polls. For these, the initiator writes a record into its own
// eager region and posts the record's offset. The target writes the result, and the data of a get,
// into the same record. So an answer needs no space in a queue, and never waits for space.
//
// The target does an operation only in memory that it has exposed to the initiator.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "platform/cache_line.h"
#include "transport/messages/endpoint.h"
#include "transport/messages/memory_access_datapath.h"
#include "transport/shm/queue/eager_region_datapath.h"

namespace bedplate {

class OutgoingPath;

enum class OperationState : uint32_t { kPosted, kDone, kRefused };

struct OperationRequest {
  OperationKind kind;  // as numbered in transport/messages/endpoint.h
  uint32_t bytes;      // of data
  uint64_t address;    // at the target
  uint64_t exposure;   // which exposure of the target this uses (RemoteMemory::kind)
  uint64_t operand;    // to add, or to store
  uint64_t expected;
};

// The record in the eager region; the data of a put or get follows it.
struct alignas(kCacheLineBytes) OperationRecord {
  OperationRequest request;
  uint64_t result;                    // written by the target: the old value
  std::atomic<OperationState> state;  // written by the target, last
};
static_assert(sizeof(OperationRecord) == kCacheLineBytes);

// The initiator's state of an operation that the target carries out.
struct Operation {
  bool is_flush = false;
  OutgoingPath* path = nullptr;  // to the target; nullptr: this entry is free
  uint64_t generation = 0;       // of the peer at the start of the operation
  uint64_t number = 0;           // in the order of their starts
  OperationKind kind = OperationKind::kPut;
  RemoteMemory remote;
  std::byte* local = nullptr;
  uint64_t bytes_done = 0;
  uint64_t operand = 0;
  uint64_t expected = 0;
  uint64_t* before = nullptr;
  Completion* done = nullptr;
  EagerRegion::Piece piece;  // of the posted record; none: the record waits to be posted
};

// Memory that this member lets one peer read and write. The peer gets a RemoteMemory with the
// entry's index and use count, so a RemoteMemory of an earlier use matches no entry.
struct Exposure {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t generation = 0;     // of the peer: a later process with its number has no access
  uint32_t peer = UINT32_MAX;  // UINT32_MAX: not in use
  uint32_t use = 0;            // how often this entry was used
  bool has_key = false;        // single copy has a key for it, which withdraw() revokes

  bool has(uint64_t first, uint64_t count) const noexcept {
    return first >= address && first - address <= bytes && count <= bytes - (first - address);
  }
};

inline constexpr uint32_t kOperationCountMax = 16;
inline constexpr uint32_t kOperationReserveCount = 4;  // for peers with no pending operation
// Even the smallest eager region has space for a record with this much data.
inline constexpr uint64_t kOperationBytesMin = kCacheLineBytes;
inline constexpr uint32_t kExposureCountMax = 32;

// Returns this provider's RemoteMemory::kind: bit 0 tells whether the memory lies in the pool, and
// the other bits identify the exposure.
constexpr uint64_t pack_exposure(bool is_pool, uint32_t index, uint32_t use) noexcept {
  return uint64_t{use} << 32 | uint64_t{index} << 1 | (is_pool ? 1 : 0);
}
constexpr bool is_pool_memory(uint64_t kind) noexcept { return (kind & 1) != 0; }
constexpr uint32_t exposure_index(uint64_t kind) noexcept {
  return static_cast<uint32_t>(kind >> 1) & 0x7fffffff;
}
constexpr uint32_t exposure_use(uint64_t kind) noexcept {
  return static_cast<uint32_t>(kind >> 32);
}

// The data of a put or get follows its record.
inline std::byte* data_of(OperationRecord* record) noexcept {
  return reinterpret_cast<std::byte*>(record + 1);
}

}  // namespace bedplate
