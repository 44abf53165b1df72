// The target's side of puts, gets and atomics: the memory that this member exposes to each peer,
// and the operations that it does there for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/result.h"
#include "transport/messages/endpoint.h"
#include "transport/shm/endpoint/shm_operations.h"
#include "transport/shm/endpoint/shm_place.h"
#include "transport/single_copy/single_copy.h"

namespace bedplate {

// One generation of a peer: a process that comes into its place later is another peer.
struct PeerGeneration {
  uint32_t peer = UINT32_MAX;
  uint64_t generation = 0;

  bool operator==(const PeerGeneration&) const noexcept = default;
};

// Threads: the shard's.
//
// Invariants: 1. An exposure that is in use is of a peer that can be. 2. No two that are in use
// have the same place and count of uses, so that an old description means nothing. (is_valid;
// the second by construction: a place counts its uses up.)
class Exposures {
 public:
  // `single_copy` may be nullptr; both outlive this.
  void create(const ShmPlace& place, SingleCopy* single_copy) noexcept;

  // Endpoint::expose and withdraw, for `who`.
  Result<RemoteMemory> expose(const PeerGeneration& who, std::span<std::byte> memory);
  void withdraw(uint32_t peer, const RemoteMemory& memory) noexcept;

  // Does the operation that the slot with `body` asks for. Returns what is wrong with it, or
  // nullptr: then the peer has its answer, and is to be woken.
  const char* serve(const PeerGeneration& who, const std::byte* body) noexcept;

  bool is_valid() const noexcept;

 private:
  const Exposure* find(const PeerGeneration& who, uint64_t kind, uint64_t address,
                       uint64_t bytes) const noexcept;

  const ShmPlace* place_ = nullptr;
  SingleCopy* single_copy_ = nullptr;
  Exposure exposures_[kExposureCountMax];
};

}  // namespace bedplate
