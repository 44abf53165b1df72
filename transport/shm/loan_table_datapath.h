// What a member has lent, to whom, and what is to happen when it comes back.
//
// Borrowers give a loan back by storing a mark into its byte in the group's segment: one plain
// store, so a borrower can neither be refused nor killed half-way. The mark is another one for each
// use, so the lender never writes there: a store to a line that the borrower has would hold up the
// message behind it. Everything else is private: any other byte means nothing.
//
// Invariants: 1. The byte of a loan that is not out is its mark. So the next mark differs from it,
// however often a loan was cancelled, or lent to somebody who died. (Of the bytes, which borrowers
// write, nothing is asserted.) 2. A loan is out, or free and in the list of those, just once.
// 3. out_count() is how many are out. (is_valid: 2, 3)
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "platform/assert.h"
#include "transport/endpoint.h"

namespace bedplate {

// Threads: one at a time.
class LoanTable {
 public:
  struct Record {
    std::byte* block = nullptr;
    Completion* returned = nullptr;  // nullptr: the block goes back to the heap
    uint16_t member = 0;
    uint16_t next_free = 0;
    uint8_t mark = 0;  // what its byte has when it was returned; free: what it has now
  };
  struct Lent {
    uint32_t loan = UINT32_MAX;  // this: too many are out
    uint8_t mark = 0;            // for the borrower
  };

  // Allocates; before the data path runs. `returned` has a byte for each loan.
  void create(std::span<std::atomic<uint8_t>> returned);

  Lent try_lend(std::byte* block, Completion* returned, uint32_t member) noexcept;
  // The message never went: the block is the caller's again.
  void cancel(uint32_t loan) noexcept {
    --records_[loan].mark;  // unused: who tries on and on must not come round to what lies there
    forget(loan);
  }

  // Threads: any.
  uint32_t out_count() const noexcept { return out_count_.load(std::memory_order_relaxed); }

  // Takes loans that have come back, at most out.size(). Returns how many; call it again when it
  // is as many as asked for. Who is told of them may lend again.
  size_t collect(std::span<Record> out) noexcept;
  // The same for what `member` has not returned. Requires: nothing of it can touch them any more.
  size_t collect_from(uint32_t member, std::span<Record> out) noexcept;

  bool is_valid() const noexcept;

 private:
  static constexpr uint16_t kNone = UINT16_MAX;
  static constexpr size_t kWalkedLoanCount = 1024;

  bool is_out(uint32_t loan) const noexcept {
    return (out_bits_[loan / 64] >> (loan % 64) & 1) != 0;
  }
  // A walk of the largest table takes as long as thousands of loans: it is walked now and then.
  bool is_time_to_walk() const noexcept {
    return out_count() % (returned_.size() / kWalkedLoanCount + 1) == 0;
  }
  void forget(uint32_t loan) noexcept;

  std::span<std::atomic<uint8_t>> returned_;
  std::unique_ptr<Record[]> records_;
  std::unique_ptr<uint64_t[]> out_bits_;
  uint32_t out_words_ = 0;
  uint16_t first_free_ = kNone;
  std::atomic<uint32_t> out_count_{0};
};

inline LoanTable::Lent LoanTable::try_lend(std::byte* block, Completion* returned,
                                           uint32_t member) noexcept {
  BP_DCHECK_SLOW(!is_time_to_walk() || is_valid());
  if (first_free_ == kNone) return {};
  const uint16_t loan = first_free_;
  Record& record = records_[loan];
  first_free_ = record.next_free;
  const auto mark = static_cast<uint8_t>(record.mark + 1);
  BP_ASSERT(!is_out(loan));
  record = {block, returned, static_cast<uint16_t>(member), kNone, mark};
  out_bits_[loan / 64] |= uint64_t{1} << (loan % 64);
  out_count_.store(out_count() + 1, std::memory_order_relaxed);
  BP_DCHECK_SLOW(!is_time_to_walk() || is_valid());
  return {loan, mark};
}

inline size_t LoanTable::collect(std::span<Record> out) noexcept {
  size_t count = 0;
  for (uint32_t word = 0; word < out_words_; ++word) {
    for (uint64_t bits = out_bits_[word]; bits != 0 && count < out.size(); bits &= bits - 1) {
      const uint32_t loan = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      // Pairs with the borrower's release: it reads no more.
      if (returned_[loan].load(std::memory_order_acquire) != records_[loan].mark) continue;
      out[count++] = records_[loan];
      forget(loan);
    }
  }
  return count;
}

inline size_t LoanTable::collect_from(uint32_t member, std::span<Record> out) noexcept {
  size_t count = 0;
  for (uint32_t loan = 0; loan < returned_.size() && count < out.size(); ++loan) {
    if (!is_out(loan) || records_[loan].member != member) continue;
    returned_[loan].store(records_[loan].mark, std::memory_order_relaxed);  // in its place
    out[count++] = records_[loan];
    forget(loan);
  }
  return count;
}

inline void LoanTable::forget(uint32_t loan) noexcept {
  BP_ASSERT(loan < returned_.size() && is_out(loan));
  out_bits_[loan / 64] &= ~(uint64_t{1} << (loan % 64));
  records_[loan].next_free = first_free_;
  first_free_ = static_cast<uint16_t>(loan);
  out_count_.store(out_count() - 1, std::memory_order_relaxed);
  BP_DCHECK_SLOW(!is_time_to_walk() || is_valid());
}

}  // namespace bedplate
