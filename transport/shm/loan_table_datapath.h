// What a member has lent, to whom, and what is to happen when it comes back.
//
// Borrowers give a loan back by setting its bit in a bitmap of the group's segment: one instruction,
// so a borrower cannot be killed half-way, and it can never be full. Everything else is private: a
// bit for a loan that is not out means nothing.
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
    uint32_t member = 0;
    uint32_t next_free = 0;
  };

  // Allocates; before the data path runs. `returned_bits` has a bit for each loan.
  void create(std::span<std::atomic<uint64_t>> returned_bits, uint32_t loan_count);

  // Returns the loan's number, or UINT32_MAX when too many are out.
  uint32_t try_lend(const Record& record) noexcept;
  // The message never went: the block is the caller's again.
  void cancel(uint32_t loan) noexcept { forget(loan); }

  uint32_t out_count() const noexcept { return out_count_; }

  // Takes loans that have come back, at most out.size(). Returns how many; call it again when it
  // is as many as asked for. Who is told of them may lend again.
  size_t collect(std::span<Record> out) noexcept;
  // The same for what `member` has not returned. Requires: nothing of it can touch them any more.
  size_t collect_from(uint32_t member, std::span<Record> out) noexcept;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  bool is_out(uint32_t loan) const noexcept {
    return (out_bits_[loan / 64] >> (loan % 64) & 1) != 0;
  }
  void forget(uint32_t loan) noexcept;
  std::span<std::atomic<uint64_t>> returned_bits_;
  std::unique_ptr<Record[]> records_;
  std::unique_ptr<uint64_t[]> out_bits_;
  uint32_t loan_count_ = 0;
  uint32_t first_free_ = kNone;
  uint32_t out_count_ = 0;
};

inline uint32_t LoanTable::try_lend(const Record& record) noexcept {
  if (first_free_ == kNone) return kNone;
  const uint32_t loan = first_free_;
  first_free_ = records_[loan].next_free;
  records_[loan] = record;
  out_bits_[loan / 64] |= uint64_t{1} << (loan % 64);
  ++out_count_;
  return loan;
}

inline size_t LoanTable::collect(std::span<Record> out) noexcept {
  size_t count = 0;
  for (size_t i = 0; i < returned_bits_.size(); ++i) {
    if (returned_bits_[i].load(std::memory_order_relaxed) == 0) continue;
    // Pairs with the borrower's release: it reads no more. What is not out means nothing.
    uint64_t bits = returned_bits_[i].exchange(0, std::memory_order_acquire) & out_bits_[i];
    for (; bits != 0 && count < out.size(); bits &= bits - 1) {
      const uint32_t loan = static_cast<uint32_t>(i * 64) +
                            static_cast<uint32_t>(std::countr_zero(bits));
      out[count++] = records_[loan];
      forget(loan);
    }
    if (bits != 0) {  // the next time
      returned_bits_[i].fetch_or(bits, std::memory_order_relaxed);
      break;
    }
  }
  return count;
}

inline size_t LoanTable::collect_from(uint32_t member, std::span<Record> out) noexcept {
  size_t count = 0;
  for (uint32_t loan = 0; loan < loan_count_ && count < out.size(); ++loan) {
    if (!is_out(loan) || records_[loan].member != member) continue;
    out[count++] = records_[loan];
    forget(loan);
  }
  return count;
}

inline void LoanTable::forget(uint32_t loan) noexcept {
  BP_ASSERT(is_out(loan));
  out_bits_[loan / 64] &= ~(uint64_t{1} << (loan % 64));
  records_[loan].next_free = first_free_;
  first_free_ = loan;
  --out_count_;
}

}  // namespace bedplate
