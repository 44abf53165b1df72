// The blocks that one peer has lent to us, indexed by the peer's loan numbers.
//
// A released loan is due back: its number goes into the next message of returns. Loans end with the
// connection; give_back() ignores loans of an earlier connection.
//
// A part of VerbsEndpoint. Threads: the shard's.
//
// Invariants: 1. A loan is borrowed or due back, not both. 2. Each loan that is due back is in
// returns_, once. (is_valid)
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "transport/messages/endpoint.h"
#include "transport/verbs/channel/channel_parts.h"
#include "transport/verbs/channel/outgoing_messages_datapath.h"
#include "transport/verbs/channel/verbs_parts.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {

class VerbsBorrower {
 public:
  // Both arguments outlive this.
  VerbsBorrower(ChannelParts& channel, OutgoingMessages& outgoing) noexcept
      : parts_(channel.shared), channel_(channel), outgoing_(outgoing) {}

  // Takes the loan in a message, and describes it in `loan`. Returns the fault of the message, or
  // nullptr.
  const char* take(const VerbsMessageHeader& header, const std::byte* body, Loan& loan) noexcept;
  // The loan was released. Returns false if its connection has ended. Requires: it is given back
  // only once.
  bool give_back(const Loan& loan) noexcept;
  bool has_returns() const noexcept { return return_count_ > 0; }
  // Lists messages of returns, while there is credit; each carries as many returns as fit.
  void send_returns() noexcept;

  // The connection is over: the peer's loans need not be given back any more.
  void end_life() noexcept;

  bool is_empty() const noexcept { return is_borrowed_.none() && return_count_ == 0; }
  bool is_valid() const noexcept {
    return (is_borrowed_ & is_due_back_).none() && is_due_back_.count() == return_count_;
  }

 private:
  VerbsParts& parts_;
  ChannelParts& channel_;
  OutgoingMessages& outgoing_;
  std::bitset<kVerbsLoanCountMax> is_borrowed_;
  std::bitset<kVerbsLoanCountMax> is_due_back_;  // in returns_: the peer may not lend it again yet
  uint32_t marks_[kVerbsLoanCountMax] = {};      // of the loans; each goes back with its return
  ReturnedLoan returns_[kVerbsLoanCountMax];
  uint32_t return_count_ = 0;
  uint32_t life_ = 0;  // counts connections
};

}  // namespace bedplate
