// The blocks that one peer has lent to us, by the numbers that it gave them.
//
// A loan that is released is due back: its number goes into the next message of returns. Loans end
// with the life of the connection; those of a former life mean nothing.
//
// A part of VerbsEndpoint. Threads: the shard's.
//
// Invariants: 1. A loan is not both here and due back. 2. Each that is due back is in returns_,
// once. (is_valid)
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
  // Both outlive this.
  VerbsBorrower(ChannelParts& channel, OutgoingMessages& outgoing) noexcept
      : parts_(channel.shared), channel_(channel), outgoing_(outgoing) {}

  // Takes the loan of a message, and describes it in `loan`. Returns the fault of the message, or
  // nullptr.
  const char* take(const VerbsMessageHeader& header, const std::byte* body, Loan& loan) noexcept;
  // The loan was released. Returns false if it is of a former life.
  bool give_back(const Loan& loan) noexcept;
  bool has_returns() const noexcept { return return_count_ > 0; }
  // Sends messages of as many returns as fit, while there is credit.
  void send_returns() noexcept;

  // The life is over: loans of the peer need not be given back any more.
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
  std::bitset<kVerbsLoanCountMax> is_due_back_;  // in returns_: it cannot be lent again yet
  uint32_t marks_[kVerbsLoanCountMax] = {};
  ReturnedLoan returns_[kVerbsLoanCountMax];
  uint32_t return_count_ = 0;
  uint32_t life_ = 0;  // counts lives
};

}  // namespace bedplate
