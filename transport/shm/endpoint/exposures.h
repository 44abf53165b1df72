// The target's side of puts, gets and atomics: the memory that this member exposes to each peer,
// and the operations that it carries out there for peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/result.h"
#include "transport/messages/endpoint.h"
#include "transport/shm/endpoint/group_view.h"
#include "transport/shm/endpoint/shm_operations.h"
#include "transport/single_copy/single_copy.h"

namespace bedplate {

// One generation of a peer: a process that gets its number later is another peer.
struct PeerGeneration {
  uint32_t peer = UINT32_MAX;
  uint64_t generation = 0;

  bool operator==(const PeerGeneration&) const noexcept = default;
};

// Threads: the shard's.
//
// Invariants: 1. An exposure in use belongs to a peer of the group. 2. Each use of an entry has
// another use count, so a stale description matches nothing. (is_valid; the second by construction:
// each entry counts its uses up.)
class Exposures {
 public:
  // `single_copy` may be nullptr; both outlive this.
  void create(const GroupView& group, SingleCopy* single_copy) noexcept;

  // Endpoint::expose and withdraw, for the peer `who`. All peers together have at most
  // kExposureCountMax exposures. The death of a peer frees none: each stays until withdraw().
  Result<RemoteMemory> expose(const PeerGeneration& who, std::span<std::byte> memory);
  void withdraw(uint32_t peer, const RemoteMemory& memory) noexcept;

  // Carries out the operation that the slot with `body` requests. Returns the fault of a malformed
  // request, as static text. Returns nullptr if the peer has its answer, which may be a refusal;
  // then the caller wakes the peer.
  const char* serve(const PeerGeneration& who, const std::byte* body) noexcept;

  bool is_valid() const noexcept;

 private:
  const Exposure* find(const PeerGeneration& who, uint64_t kind, uint64_t address,
                       uint64_t bytes) const noexcept;

  const GroupView* group_ = nullptr;
  SingleCopy* single_copy_ = nullptr;
  Exposure exposures_[kExposureCountMax];
};

}  // namespace bedplate
