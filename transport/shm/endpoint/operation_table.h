// The initiator's side of puts, gets and atomics that their targets carry out: the pending
// operations for all peers, and the steps of each (shm_operations.h has the format).
#pragma once

#include <cstdint>

#include "transport/shm/endpoint/peer_share_datapath.h"
#include "transport/shm/endpoint/shm_operations.h"
#include "transport/shm/queue/outgoing_path_datapath.h"

namespace bedplate {

// Threads: the shard's.
//
// Invariants: 1. The number of entries in use agrees with operation_count_ and with the shares. 2.
// Each entry in use has a number, and no later operation has the same. (is_valid)
class OperationTable {
 public:
  // `parts` outlives this. Allocates.
  void create(OutgoingParts& parts);

  // Asks the target to carry out `wanted`. Returns kPending, kAgain, or kRefused if the group has
  // no eager regions. If the target refuses, `wanted.done` gets the outcome. Requires: the path is
  // open.
  SendStatus start(OutgoingPath& path, const RemoteOperation& wanted) noexcept;
  // Returns kDone if no operation of this path is pending, else kPending or kAgain. Requires: the
  // path is open.
  SendStatus start_flush(OutgoingPath& path, Completion* done) noexcept;

  bool is_idle() const noexcept { return operation_count_ == 0; }
  // Advances all operations, and calls the completions of those that end. Returns the number of
  // operations that end, or that wait for space and so need another poll.
  uint32_t poll() noexcept;

  bool is_valid() const noexcept;

 private:
  Operation* keep(OutgoingPath& path, const Operation& operation) noexcept;
  void forget(Operation& operation) noexcept;
  bool has_any(const OutgoingPath& path, uint64_t before) const noexcept;
  uint32_t next_piece_bytes(const Operation& operation) const noexcept;
  // Posts the operation's next record. Returns false if there is no space.
  bool post(Operation& operation, OutgoingPath& path) noexcept;
  // Returns whether it has ended; then `*outcome` says how.
  bool advance(Operation& operation, OutgoingPath& path, Outcome* outcome) noexcept;
  bool take_answer(Operation& operation, OutgoingPath& path, Outcome* outcome) noexcept;

  OutgoingParts* parts_ = nullptr;
  uint32_t operation_count_ = 0;
  uint64_t last_number_ = 0;
  PeerShare share_;
  Operation operations_[kOperationCountMax];
};

}  // namespace bedplate
