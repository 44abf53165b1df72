// The initiator's side of the puts, gets and atomics that their targets do: those under way, for
// all peers, and the next step of each (shm_operations.h has the format).
#pragma once

#include <cstdint>

#include "transport/shm/endpoint/peer_share_datapath.h"
#include "transport/shm/endpoint/shm_operations.h"
#include "transport/shm/queue/outgoing_way_datapath.h"

namespace bedplate {

// Threads: the shard's.
//
// Invariants: 1. As many places are in use as operation_count_ and the shares say. 2. Each was
// started: it has a number, which no later one has. (is_valid)
class OperationTable {
 public:
  // `parts` outlive this. Allocates.
  void create(OutgoingParts& parts);

  // Asks the target to do `operation`. Returns kPending, kAgain, or kRefused if it cannot be asked.
  // Requires: the way is open.
  SendStatus start(OutgoingWay& way, const RemoteOperation& wanted) noexcept;
  // Returns kDone if nothing is under way, else kPending or kAgain.
  SendStatus start_flush(OutgoingWay& way, Completion* done) noexcept;

  bool is_idle() const noexcept { return operation_count_ == 0; }
  // Goes on with all of them, and calls the completions of those that have ended. Returns how many
  // have ended, or wait for room.
  uint32_t poll() noexcept;

  bool is_valid() const noexcept;

 private:
  Operation* keep(OutgoingWay& way, const Operation& operation) noexcept;
  void forget(Operation& operation) noexcept;
  bool has_any(const OutgoingWay& way, uint64_t before) const noexcept;
  uint32_t next_piece_bytes(const Operation& operation) const noexcept;
  // Posts the operation's next record. Returns false when there is no room.
  bool post(Operation& operation, OutgoingWay& way) noexcept;
  // Returns whether it has ended, and how.
  bool advance(Operation& operation, OutgoingWay& way, Outcome* outcome) noexcept;
  bool take_answer(Operation& operation, OutgoingWay& way, Outcome* outcome) noexcept;

  OutgoingParts* parts_ = nullptr;
  uint32_t operation_count_ = 0;
  uint64_t last_number_ = 0;
  PeerShare share_;
  Operation operations_[kOperationCountMax];
};

}  // namespace bedplate
