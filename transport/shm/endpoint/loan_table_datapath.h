// The loans of a member, the borrower of each, and the bytes by which the loans come back.
//
// A borrower returns a loan by storing a mark into the loan's byte in the group's segment. One
// plain store cannot be refused, nor end half-way if the borrower is killed. The mark differs from
// use to use, so the lender need not reset the byte: a store to a line in the borrower's cache
// would hold up the message behind it. The lender stores the byte only in place of a dead borrower.
// Any byte but the mark means nothing. All other state is private.
//
// Invariant: the byte of a loan that is not out is its mark. So the next mark differs from it,
// however often a loan was cancelled, or lent to a member that died. (Borrowers write the bytes, so
// no assertion checks them. is_valid() is the book's.)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/messages/loan_book_datapath.h"

namespace bedplate {

// Threads: one at a time.
class LoanTable {
 public:
  struct Record : LoanRecord {
    uint16_t member = 0;       // the borrower
    uint8_t mark = 0;          // out: the byte's value after the return; free: its value now
    bool is_returned = false;  // in a record of an ended loan: its borrower gave it back
  };
  static_assert(sizeof(Record) == 24, "a largest table stays in the cache as long as it can");
  struct Lent {
    uint32_t loan = UINT32_MAX;  // UINT32_MAX: too many are out
    uint8_t mark = 0;            // for the borrower
  };

  // Allocates; before the data path runs. `returned` has a byte for each loan.
  void create(std::span<std::atomic<uint8_t>> returned) {
    BP_ASSERT(returned_.empty());
    book_.create(static_cast<uint32_t>(returned.size()));
    returned_ = returned;
  }

  Lent try_lend(std::byte* block, Completion* returned, uint32_t member) noexcept;
  // Takes back a loan whose message was never sent: the block is the caller's again.
  void cancel(uint32_t loan) noexcept {
    // The mark was not used. If each try used one, a caller that tries again and again would come
    // round to a mark that still lies in a slot.
    --book_[loan].mark;
    book_.cancel(loan);
  }

  uint32_t out_count() const noexcept { return book_.out_count(); }

  // Ends returned loans, at most out.size(), and copies their records to `out`. The caller calls
  // finish_loan() for each, which may lend the same loan again. Returns how many; if it is
  // out.size(), there may be more.
  size_t collect(std::span<Record> out) noexcept;
  // The same for all loans to `member` that are out, returned or not. Requires: as for
  // Lender::collect_from().
  size_t collect_from(uint32_t member, std::span<Record> out) noexcept;

  bool is_valid() const noexcept { return book_.is_valid(); }

 private:
  bool has_come_back(uint32_t loan) const noexcept {
    // Pairs with the borrower's release: the borrower reads the memory no more.
    return returned_[loan].load(std::memory_order_acquire) == book_[loan].mark;
  }

  std::span<std::atomic<uint8_t>> returned_;
  LoanBook<Record, LoanOrder::kLastFirst> book_;
};

inline LoanTable::Lent LoanTable::try_lend(std::byte* block, Completion* returned,
                                           uint32_t member) noexcept {
  const uint32_t loan = book_.try_lend(block, returned);
  if (loan == book_.kNone) return {};
  Record& record = book_[loan];
  const auto mark = static_cast<uint8_t>(record.mark + 1);
  record.mark = mark;
  record.member = static_cast<uint16_t>(member);
  return {loan, mark};
}

inline size_t LoanTable::collect(std::span<Record> out) noexcept {
  BP_DCHECK(!out.empty());  // else the count does not show whether there are more
  size_t count = 0;
  book_.for_each_out([&](uint32_t loan) noexcept {
    if (!has_come_back(loan)) return true;
    out[count] = book_.end(loan);
    out[count++].is_returned = true;
    return count < out.size();
  });
  return count;
}

inline size_t LoanTable::collect_from(uint32_t member, std::span<Record> out) noexcept {
  BP_DCHECK(!out.empty());
  size_t count = 0;
  book_.for_each_out([&](uint32_t loan) noexcept {
    if (book_[loan].member != member) return true;
    const bool is_returned = has_come_back(loan);
    returned_[loan].store(book_[loan].mark, std::memory_order_relaxed);  // in the borrower's stead
    out[count] = book_.end(loan);
    out[count++].is_returned = is_returned;
    return count < out.size();
  });
  return count;
}

}  // namespace bedplate
