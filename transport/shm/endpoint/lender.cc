#include "transport/shm/endpoint/lender.h"

namespace bedplate {

void Lender::create(const GroupView& group) {
  loans_.create(group.segment().returned_loans(group.self()));
  loan_count_ = group.shape().loan_count;
  share_ = PeerShare(group.member_count(), loan_count_, loan_count_ / 8);
  BP_DCHECK_SLOW(is_valid());
}

LoanTable::Lent Lender::lend(std::byte* block, Completion* returned, uint32_t peer) noexcept {
  BP_KEEPS_VALID(*this);
  if (!share_.may_take(peer)) return {};
  share_.take(peer);
  const LoanTable::Lent lent = loans_.try_lend(block, returned, peer);
  BP_ASSERT(lent.loan != UINT32_MAX);  // the share has confirmed that one is free
  return lent;
}

void Lender::cancel(uint32_t loan, uint32_t peer) noexcept {
  BP_KEEPS_VALID(*this);
  share_.give_back(peer);
  loans_.cancel(loan);
}

uint32_t Lender::collect() noexcept {
  LoanTable::Record records[kBatch];
  const size_t count = loans_.collect(records);
  for (size_t i = 0; i < count; ++i) share_.give_back(records[i].member);
  BP_DCHECK_SLOW(is_valid());  // the callback below may lend again
  for (size_t i = 0; i < count; ++i) finish_loan(records[i], Outcome::kDone);
  return static_cast<uint32_t>(count);
}

void Lender::collect_from(uint32_t peer) noexcept {
  LoanTable::Record records[kBatch];
  size_t count = 0;
  do {
    count = loans_.collect_from(peer, records);
    for (size_t i = 0; i < count; ++i) share_.give_back(peer);
    BP_DCHECK_SLOW(is_valid());
    for (size_t i = 0; i < count; ++i) {
      finish_loan(records[i], records[i].is_returned ? Outcome::kDone : Outcome::kUnknown);
    }
  } while (count == kBatch);
}

bool Lender::is_valid() const noexcept {
  return loans_.is_valid() && share_.is_valid() &&
         share_.free_count() + loans_.out_count() == loan_count_;
}

}  // namespace bedplate
