// Puts, gets and atomics between members.
//
// If the target's memory is mapped here with the right that it takes, they are done on the spot: a
// copy, an atomic instruction. Other memory of the target is read and written by single copy, if
// this machine has it. The target does the rest itself, when it polls: the initiator writes a
// record into its own eager region and posts its place; the target fills in the result, and the
// data of a get, in that same place. So an answer needs no room in any queue, and can neither be
// refused nor wait.
//
// The target does so only in memory that it has exposed to just this peer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "platform/cache_line.h"
#include "transport/messages/endpoint.h"
#include "transport/messages/memory_access_datapath.h"
#include "transport/shm/queue/eager_region_datapath.h"

namespace bedplate {

class OutgoingWay;

enum class OperationState : uint32_t { kPosted, kDone, kRefused };

struct OperationRequest {
  OperationKind kind;  // as numbered in transport/messages/endpoint.h
  uint32_t bytes;      // of data
  uint64_t address;    // at the target
  uint64_t exposure;   // which of its descriptions this is about (RemoteMemory::kind)
  uint64_t operand;    // added, or wanted
  uint64_t expected;
};

// The record in the eager region; the data of a put or get follow it.
struct alignas(kCacheLineBytes) OperationRecord {
  OperationRequest request;
  uint64_t result;                    // by the target: the value before
  std::atomic<OperationState> state;  // by the target, last
};
static_assert(sizeof(OperationRecord) == kCacheLineBytes);

// An operation that the target does, as the initiator keeps it.
struct Operation {
  bool is_flush = false;
  OutgoingWay* way = nullptr;  // to the target; nullptr: there is none in this place
  uint64_t generation = 0;     // of the peer that it was started with
  uint64_t number = 0;         // in the order in which they were started
  OperationKind kind = OperationKind::kPut;
  RemoteMemory remote;
  std::byte* local = nullptr;
  uint64_t bytes_done = 0;
  uint64_t operand = 0;
  uint64_t expected = 0;
  uint64_t* before = nullptr;
  Completion* done = nullptr;
  EagerRegion::Piece piece;  // of the record that is under way; none: it is to be posted
};

// Memory that this member lets one peer read and write. The description that travels has its place
// and the number of that place's use, so that an old one means nothing.
struct Exposure {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t generation = 0;     // of the peer: another that comes into its place later may not
  uint32_t peer = UINT32_MAX;  // nobody: not in use
  uint32_t use = 0;            // how often this place was used
  bool has_key = false;        // of single copy, which is withdrawn with it

  bool has(uint64_t first, uint64_t count) const noexcept {
    return first >= address && first - address <= bytes && count <= bytes - (first - address);
  }
};

inline constexpr uint32_t kOperationCountMax = 16;
inline constexpr uint32_t kOperationReserveCount = 4;  // for peers that have none (PeerShare)
// A record has room for so much of its data at least, however small the eager region.
inline constexpr uint64_t kOperationBytesMin = kCacheLineBytes;
inline constexpr uint32_t kExposureCountMax = 32;

// RemoteMemory::kind of this provider: whether the memory is the pool's, and the exposure.
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

// The data of a put or get lie behind its record.
inline std::byte* data_of(OperationRecord* record) noexcept {
  return reinterpret_cast<std::byte*>(record + 1);
}

}  // namespace bedplate
