// Single copy between this member and a peer. Each endpoint has one PeerCopy, and opens it when the
// endpoint is opened, so no put or get has to open it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "platform/file.h"
#include "platform/result.h"
#include "transport/shm/endpoint/group_view.h"
#include "transport/shm/endpoint/shm_operations.h"
#include "transport/single_copy/single_copy.h"

namespace bedplate {

// Threads: the shard's.
class PeerCopy {
 public:
  // Forgets the former peer, and tries to open the memory of the process that is `peer` now.
  // Allocates once, and holds a descriptor while the peer's memory is open. Cost: some system
  // calls. Errors: SingleCopy::attach's, no memory, or no descriptor of the peer's process; then
  // the target copies.
  Result<void> open(const GroupView& group, SingleCopy& single_copy, uint32_t peer) noexcept;
  void close() noexcept;

  // Does a put or get at once. Returns kDone, kGone, kRefused, or kAgain if single copy is not
  // possible: then the target must do the operation.
  SendStatus copy(const RemoteOperation& operation) noexcept;

 private:
  Fd pidfd_;
  std::unique_ptr<PeerMemory> memory_;  // reused for every process that gets the peer's number
};

}  // namespace bedplate
