#include "transport/shm/endpoint/borrower.h"

#include <span>

namespace bedplate {
namespace {

// A loan's token has four fields: the lender's generation and number, the loan, its mark.
constexpr unsigned kTokenGenerationShift = 35;

}  // namespace

void Borrower::create(const Options& options) noexcept {
  BP_ASSERT(group_ == nullptr);
  group_ = &options.group;
  endpoints_ = &options.endpoints;
  owner_ = &options.owner;
  returns_at_once_ = options.returns_at_once;
}

const char* Borrower::borrow(ShmEndpoint& from, const LoanDescriptor& descriptor,
                             Loan* loan) noexcept {
  const auto* memory = reinterpret_cast<const std::byte*>(descriptor.address);
  const Segment* segment = group_->shared_segment(memory, descriptor.bytes);
  // Accepts only memory that the lender could read itself. Other memory mapped here may be secret
  // from the lender, and a handler may well send a loan's bytes back.
  if (descriptor.loan >= group_->shape().loan_count ||
      descriptor.header_bytes > kLoanHeaderBytesMax || segment == nullptr ||
      !group_->members().may_read(from.peer(), segment->number)) {
    refuse(from.peer(), descriptor);
    return "a loan of memory that it may not lend";
  }
  loan->memory = {memory, descriptor.bytes};
  loan->provider = owner_;
  loan->token = from.generation() << kTokenGenerationShift | uint64_t{from.peer()} << 24 |
                uint64_t{descriptor.loan} << 8 | (descriptor.mark & 0xff);
  if (from.incoming().held_count++ == 0) set_held(from.peer(), true);
  return nullptr;
}

// Stores the mark unchecked: only the lender reads its returned loans.
void Borrower::refuse(uint32_t lender, const LoanDescriptor& descriptor) noexcept {
  if (descriptor.loan >= group_->shape().loan_count) return;
  group_->segment().returned_loans(lender)[descriptor.loan].store(
      static_cast<uint8_t>(descriptor.mark), std::memory_order_release);
}

void Borrower::release(const Loan& loan) noexcept {
  BP_ASSERT(loan.provider == owner_);
  const Return returned = {loan.token >> kTokenGenerationShift,
                           static_cast<uint32_t>(loan.token >> 24) & kMemberCountMax,
                           static_cast<uint16_t>(loan.token >> 8),
                           static_cast<uint8_t>(loan.token)};
  if (returns_at_once_) return give_back(returned);
  if (released_count_ == kReleasedCountMax) give_back_released();
  BP_DCHECK(released_count_ < kReleasedCountMax);
  BP_DCHECK_SLOW(is_valid());
  released_[released_count_++] = returned;
  BP_DCHECK_SLOW(is_valid());
}

void Borrower::give_back_released() noexcept {
  BP_DCHECK_SLOW(is_valid());
  for (uint32_t i = 0; i < released_count_; ++i) give_back(released_[i]);
  released_count_ = 0;
}

bool Borrower::is_of(const Return& loan, const ShmEndpoint& from) noexcept {
  return from.generation() << kTokenGenerationShift == loan.generation << kTokenGenerationShift;
}

void Borrower::give_back(const Return& loan) noexcept {
  if (is_stopped_) return;
  BP_ASSERT(group_->is_peer(loan.lender));
  ShmEndpoint& from = *endpoints_->at(loan.lender);
  // The lender is gone, and its number was given out although this member held a loan of it:
  // somebody has overwritten the bit that says so.
  if (!is_of(loan, from)) return;
  // Release: this member's reads of the loan's memory come before.
  group_->segment().returned_loans(loan.lender)[loan.loan].store(loan.mark,
                                                                 std::memory_order_release);
  IncomingPeer& incoming = from.incoming();
  BP_ASSERT(incoming.held_count > 0);
  if (--incoming.held_count == 0) set_held(loan.lender, false);
  from.path().ring();
}

// Tells the owner whether the lender's number must be kept from new members because of our loans.
void Borrower::set_held(uint32_t lender, bool is_held) noexcept {
  std::atomic<uint64_t>& word = group_->segment().held_loans(group_->self())[lender / 64];
  const uint64_t bit = uint64_t{1} << (lender % 64);
  const uint64_t before = word.load(std::memory_order_relaxed);
  word.store(is_held ? before | bit : before & ~bit, std::memory_order_release);
}

void Borrower::stop() noexcept { is_stopped_ = true; }

bool Borrower::is_valid() const noexcept {
  if (released_count_ > kReleasedCountMax) return false;
  for (const Return& loan : std::span(released_, released_count_)) {
    if (!group_->is_peer(loan.lender) || loan.loan >= group_->shape().loan_count) return false;
    const ShmEndpoint* from = endpoints_->at(loan.lender);
    if (from == nullptr) return false;
    if (!is_of(loan, *from)) continue;
    uint32_t count = 0;
    for (const Return& other : std::span(released_, released_count_)) {
      if (other.lender == loan.lender && is_of(other, *from)) ++count;
    }
    if (count > from->incoming().held_count) return false;
  }
  return true;
}

}  // namespace bedplate
