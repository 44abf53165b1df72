// Message bodies are copied out and checked before use.
#include "transport/verbs/channel/verbs_borrower_datapath.h"

#include <algorithm>
#include <cstring>

namespace bedplate {
namespace {

// Loan::token.
uint64_t pack_token(uint16_t link, uint32_t life, uint32_t loan) noexcept {
  return uint64_t{link} << 48 | uint64_t{life} << 16 | loan;
}

}  // namespace

const char* VerbsBorrower::take(const VerbsMessageHeader& header, const std::byte* body,
                                Loan& loan) noexcept {
  VerbsLoanBody lent;
  if (header.bytes < sizeof lent || header.bytes > sizeof lent + kVerbsLoanHeaderBytesMax) {
    return "a malformed loan";
  }
  std::memcpy(&lent, body, sizeof lent);
  if (lent.loan >= kVerbsLoanCountMax || is_borrowed_[lent.loan] || is_due_back_[lent.loan] ||
      !channel_.may_reach(lent.memory, kRead) ||
      lent.memory.address + lent.memory.bytes < lent.memory.address) {
    return "a malformed loan";
  }
  BP_DCHECK(channel_.is_live);
  is_borrowed_[lent.loan] = true;
  marks_[lent.loan] = lent.mark;
  loan = {{}, lent.memory, parts_.provider, pack_token(channel_.link.index, life_, lent.loan)};
  return nullptr;
}

bool VerbsBorrower::give_back(const Loan& loan) noexcept {
  const auto index = static_cast<uint32_t>(loan.token & 0xffff);
  if (!channel_.is_live || loan.token != pack_token(channel_.link.index, life_, index)) {
    return false;
  }
  BP_ASSERT(is_borrowed_[index]);  // else it is given back twice
  is_borrowed_[index] = false;
  BP_DCHECK(!is_due_back_[index] && return_count_ < kVerbsLoanCountMax);
  is_due_back_[index] = true;
  returns_[return_count_++] = {index, marks_[index]};
  return true;
}

void VerbsBorrower::send_returns() noexcept {
  const uint32_t count_max =
      parts_.limits.am_bytes_max / static_cast<uint32_t>(sizeof(ReturnedLoan));
  while (return_count_ > 0 && outgoing_.has_credit()) {
    const uint32_t count = std::min(return_count_, count_max);
    BP_DCHECK(count > 0);
    return_count_ -= count;
    const auto bytes = static_cast<uint32_t>(count * sizeof(ReturnedLoan));
    std::memcpy(outgoing_.next_body(), returns_ + return_count_, bytes);
    for (uint32_t i = 0; i < count; ++i) is_due_back_[returns_[return_count_ + i].loan] = false;
    outgoing_.send(VerbsMessageKind::kReturns, 0, bytes);
  }
}

void VerbsBorrower::end_life() noexcept {
  BP_DCHECK(!channel_.is_live && !channel_.is_draining);
  ++life_;
  is_borrowed_.reset();
  is_due_back_.reset();
  return_count_ = 0;
}

}  // namespace bedplate
