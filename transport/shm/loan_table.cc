#include "transport/shm/loan_table_datapath.h"

namespace bedplate {

void LoanTable::create(std::span<std::atomic<uint64_t>> returned_bits, uint32_t loan_count) {
  BP_ASSERT(returned_bits.size() * 64 >= loan_count);
  returned_bits_ = returned_bits;
  loan_count_ = loan_count;
  records_ = std::make_unique<Record[]>(loan_count);
  out_bits_ = std::make_unique<uint64_t[]>(returned_bits.size());
  for (uint32_t loan = loan_count; loan-- > 0;) {
    records_[loan].next_free = first_free_;
    first_free_ = loan;
  }
}

}  // namespace bedplate
