// The loans of a provider. For each loan the book knows whether it is out, its block, and the
// callback at its end. A loan comes back by a byte (shm), a message (verbs) or a call (self). So
// each provider derives its records from LoanRecord, and adds its own data.
//
// Invariants: 1. A loan is either out, or once in the list of free ones. 2. out_count() is how many
// are out. (is_valid)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "alloc/pool_heap.h"
#include "platform/assert.h"
#include "transport/messages/endpoint.h"

namespace bedplate {

// Selects the free loan that is lent next.
enum class LoanOrder : uint8_t {
  kLastFirst,  // the last one freed: its lines are still in the cache
  kRound,      // the one free for longest: peers' knowledge of it is stale by then
};

struct LoanRecord {
  std::byte* block = nullptr;
  Completion* returned = nullptr;  // nullptr: the block goes back to the heap
  uint16_t next_free = 0;          // the book's
};

// Calls the callback, or frees the block. The provider calls this when the loan has come back, or
// when nobody can touch its block any more.
inline void finish_loan(const LoanRecord& record, Outcome outcome) noexcept {
  if (record.returned != nullptr) record.returned->call(*record.returned, outcome);
  else pool_free(record.block);
}

// Threads: one at a time. `Record` is derived from LoanRecord; its other members stay as they are
// when a loan is lent, comes back or is cancelled.
template <typename Record, LoanOrder kOrder>
class LoanBook {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kCountMax = UINT16_MAX;

  // Allocates; before the data path runs.
  void create(uint32_t count) {
    BP_ASSERT(records_.empty() && count <= kCountMax);
    count_ = count;
    records_ = std::vector<Record>(count);
    out_bits_ = std::vector<uint64_t>(word_count());
    for (uint32_t loan = count; loan-- > 0;) give_first(loan);
    BP_DCHECK_SLOW(is_valid());
  }

  uint32_t count() const noexcept { return count_; }
  uint32_t out_count() const noexcept { return out_count_; }
  bool is_full() const noexcept { return first_free_ == kEnd; }
  // Requires, here and below: loan < count().
  bool is_out(uint32_t loan) const noexcept {
    return (out_bits_[loan / 64] >> (loan % 64) & 1) != 0;
  }
  Record& operator[](uint32_t loan) noexcept { return records_[loan]; }
  const Record& operator[](uint32_t loan) const noexcept { return records_[loan]; }

  // Returns the loan's number; kNone: all loans are out.
  uint32_t try_lend(std::byte* block, Completion* returned) noexcept {
    BP_DCHECK_SLOW(!is_time_to_walk() || is_valid());
    if (is_full()) return kNone;
    const uint32_t loan = first_free_;
    BP_ASSERT(!is_out(loan));
    Record& record = records_[loan];
    first_free_ = record.next_free;
    record.block = block;
    record.returned = returned;
    out_bits_[loan / 64] |= bit(loan);
    ++out_count_;
    BP_DCHECK_SLOW(!is_time_to_walk() || is_valid());
    return loan;
  }
  // Takes back a loan that was never sent: it is lent next, and its block is the caller's again.
  // Requires: it is out.
  void cancel(uint32_t loan) noexcept {
    forget(loan);
    give_first(loan);
    BP_DCHECK_SLOW(!is_time_to_walk() || is_valid());
  }
  // Ends the loan and returns its record; the caller calls finish_loan(). Requires: it is out.
  Record end(uint32_t loan) noexcept {
    forget(loan);
    if (kOrder == LoanOrder::kLastFirst) give_first(loan);
    else give_last(loan);
    BP_DCHECK_SLOW(!is_time_to_walk() || is_valid());
    return records_[loan];
  }

  // Calls `body(loan)` for each loan that is out, until `body` returns false. `body` may end this
  // loan, but no other. It may lend others, and this function may or may not visit those.
  template <typename Body>
  void for_each_out(Body&& body) noexcept {
    for (uint32_t word = 0; word < word_count(); ++word) {
      for (uint64_t bits = out_bits_[word]; bits != 0; bits &= bits - 1) {
        if (!body(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)))) return;
      }
    }
  }

  // Cost: a walk through all loans.
  bool is_valid() const noexcept {
    uint32_t out_count = 0;
    for (uint32_t word = 0; word < word_count(); ++word) {
      out_count += static_cast<uint32_t>(std::popcount(out_bits_[word]));
    }
    uint32_t free_count = 0;
    for (uint16_t loan = first_free_; loan != kEnd; loan = records_[loan].next_free) {
      if (loan >= count_ || is_out(loan)) return false;
      if (++free_count > count_) return false;  // the list has a cycle
      if (records_[loan].next_free == kEnd && loan != last_free_) return false;
    }
    return out_count == out_count_ && out_count + free_count == count_;
  }

 private:
  static constexpr uint16_t kEnd = UINT16_MAX;
  static constexpr uint32_t kWalkedCount = 1024;

  static constexpr uint64_t bit(uint32_t loan) noexcept { return uint64_t{1} << (loan % 64); }
  uint32_t word_count() const noexcept { return (count_ + 63) / 64; }
  // A walk of the largest book takes as long as thousands of loans. So only some calls walk.
  bool is_time_to_walk() const noexcept { return out_count_ % (count_ / kWalkedCount + 1) == 0; }
  void forget(uint32_t loan) noexcept {
    BP_ASSERT(loan < count_ && is_out(loan));
    out_bits_[loan / 64] &= ~bit(loan);
    --out_count_;
  }
  void give_first(uint32_t loan) noexcept {
    if (is_full()) last_free_ = static_cast<uint16_t>(loan);
    records_[loan].next_free = first_free_;
    first_free_ = static_cast<uint16_t>(loan);
  }
  void give_last(uint32_t loan) noexcept {
    if (is_full()) return give_first(loan);
    records_[loan].next_free = kEnd;
    records_[last_free_].next_free = static_cast<uint16_t>(loan);
    last_free_ = static_cast<uint16_t>(loan);
  }

  std::vector<Record> records_;
  std::vector<uint64_t> out_bits_;
  uint32_t count_ = 0;
  uint32_t out_count_ = 0;
  uint16_t first_free_ = kEnd;
  uint16_t last_free_ = kEnd;
};

}  // namespace bedplate
