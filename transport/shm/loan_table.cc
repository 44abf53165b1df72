#include "transport/shm/loan_table_datapath.h"

namespace bedplate {

void LoanTable::create(std::span<std::atomic<uint8_t>> returned) {
  BP_ASSERT(returned.size() <= kNone);
  returned_ = returned;
  out_words_ = static_cast<uint32_t>((returned.size() + 63) / 64);
  records_ = std::make_unique<Record[]>(returned.size());
  out_bits_ = std::make_unique<uint64_t[]>(out_words_);
  for (auto loan = static_cast<uint32_t>(returned.size()); loan-- > 0;) {
    records_[loan].next_free = first_free_;
    first_free_ = static_cast<uint16_t>(loan);
  }
  BP_DCHECK_SLOW(is_valid());
}

bool LoanTable::is_valid() const noexcept {
  size_t out_count = 0;
  for (uint32_t word = 0; word < out_words_; ++word) {
    out_count += static_cast<size_t>(std::popcount(out_bits_[word]));
  }
  if (out_count != out_count_.load(std::memory_order_relaxed)) return false;
  size_t free_count = 0;
  for (uint16_t loan = first_free_; loan != kNone; loan = records_[loan].next_free) {
    if (loan >= returned_.size() || is_out(loan)) return false;
    if (++free_count > returned_.size()) return false;  // round and round
  }
  return out_count + free_count == returned_.size();
}

}  // namespace bedplate
