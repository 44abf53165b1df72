// The loans of a member to all its peers, with the share of each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/shm/endpoint/group_view.h"
#include "transport/shm/endpoint/loan_table_datapath.h"
#include "transport/shm/endpoint/peer_share_datapath.h"

namespace bedplate {

// Threads: the shard's.
//
// Invariants: 1. The book of loans is valid. 2. The number of loans out is the sum of the peers'
// shares. (is_valid)
class Lender {
 public:
  static constexpr uint32_t kBatch = 32;

  // Allocates.
  void create(const GroupView& group);

  // As LoanTable::try_lend(). Also returns UINT32_MAX as the loan if `peer` has its full share.
  LoanTable::Lent lend(std::byte* block, Completion* returned, uint32_t peer) noexcept;
  // Takes back a loan whose message was never sent: the block is the caller's again.
  void cancel(uint32_t loan, uint32_t peer) noexcept;
  uint32_t out_count() const noexcept { return loans_.out_count(); }

  // Ends loans that have come back from any peer, with Outcome::kDone: at most kBatch in one call.
  // Returns how many; if it is kBatch, there may be more.
  uint32_t collect() noexcept;
  // Ends all loans to `peer` that are still out: with Outcome::kDone if it has returned them since
  // the last collect(), else with kUnknown. Requires: it cannot touch them any more, or this member
  // is dead to the others.
  void collect_from(uint32_t peer) noexcept;

  bool is_valid() const noexcept;

 private:
  uint32_t loan_count_ = 0;
  LoanTable loans_;
  PeerShare share_;
};

}  // namespace bedplate
