// The loans of a member: to whom they went, and how it learns that they have come back.
//
// Borrowers give a loan back by storing a mark into its byte in the group's segment: one plain
// store, so a borrower can neither be refused nor killed half-way. The mark is another one for each
// use, so the lender never writes there: a store to a line that the borrower has would hold up the
// message behind it. Everything else is private: any other byte means nothing.
//
// Invariant: the byte of a loan that is not out is its mark. So the next mark differs from it,
// however often a loan was cancelled, or lent to somebody who died. (Nothing is asserted of the
// bytes, since borrowers write them. is_valid() is the book's.)
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
    uint16_t member = 0;
    uint8_t mark = 0;  // what its byte has when it was returned; free: what it has now
  };
  static_assert(sizeof(Record) == 24, "a largest table stays in the cache as long as it can");
  struct Lent {
    uint32_t loan = UINT32_MAX;  // this: too many are out
    uint8_t mark = 0;            // for the borrower
  };

  // Allocates; before the data path runs. `returned` has a byte for each loan.
  void create(std::span<std::atomic<uint8_t>> returned) {
    BP_ASSERT(returned_.empty());
    book_.create(static_cast<uint32_t>(returned.size()));
    returned_ = returned;
  }

  Lent try_lend(std::byte* block, Completion* returned, uint32_t member) noexcept;
  // The message never went: the block is the caller's again.
  void cancel(uint32_t loan) noexcept {
    // The mark was not used. A caller that tries on and on would else come round to one that still
    // lies in a slot.
    --book_[loan].mark;
    book_.cancel(loan);
  }

  uint32_t out_count() const noexcept { return book_.out_count(); }

  // Takes loans that have come back, at most out.size(). Returns how many; call it again when it
  // is as many as asked for. A completion that is told of one may lend it again.
  size_t collect(std::span<Record> out) noexcept;
  // The same for what `member` has not returned. Requires: nothing of it can touch them any more.
  size_t collect_from(uint32_t member, std::span<Record> out) noexcept;

  bool is_valid() const noexcept { return book_.is_valid(); }

 private:
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
  BP_DCHECK(!out.empty());  // else nobody would see whether there is more
  size_t count = 0;
  book_.for_each_out([&](uint32_t loan) noexcept {
    // Pairs with the borrower's release: it reads no more.
    if (returned_[loan].load(std::memory_order_acquire) != book_[loan].mark) return true;
    out[count++] = book_.end(loan);
    return count < out.size();
  });
  return count;
}

inline size_t LoanTable::collect_from(uint32_t member, std::span<Record> out) noexcept {
  BP_DCHECK(!out.empty());
  size_t count = 0;
  book_.for_each_out([&](uint32_t loan) noexcept {
    if (book_[loan].member != member) return true;
    returned_[loan].store(book_[loan].mark, std::memory_order_relaxed);  // in its place
    out[count++] = book_.end(loan);
    return count < out.size();
  });
  return count;
}

}  // namespace bedplate
