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
}

}  // namespace bedplate
