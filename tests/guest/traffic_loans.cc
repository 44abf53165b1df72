// Loans of the traffic, from both ends.
#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "tests/guest/traffic.h"

namespace bedplate::traffic {
namespace {

constexpr uint64_t kLoanStream = 2;
constexpr uint64_t kLoanBytesMax = 20'000;
constexpr uint64_t kLoanCountMax = 1 << 20;
constexpr uint8_t kOpen = 0xff;  // it has not ended

struct LoanHeader {
  uint64_t number;
  uint64_t bytes;
};

}  // namespace

Lender::Lender() {
  outcomes_.reserve(kLoanCountMax);
  for (Block& block : blocks_) {
    block.lender = this;
    block.bytes.reserve(kLoanBytesMax);
    block.call = [](Completion& self, Outcome outcome) noexcept {
      Block& ended = static_cast<Block&>(self);
      if (!ended.is_lent) report_fault("loan %" PRIu64 " came back twice", ended.number);
      ended.is_lent = false;
      ended.lender->ends_.add(outcome);
      ended.lender->outcomes_[ended.number] = static_cast<uint8_t>(outcome);
    };
  }
}

void Lender::step(Endpoint& peer, bool may_begin) noexcept {
  for (Block& block : blocks_) {
    if (block.is_lent || !may_begin || outcomes_.size() == kLoanCountMax) continue;
    block.number = outcomes_.size();
    block.bytes.resize(100 + block.number * 7919 % (kLoanBytesMax - 100));
    fill(block.bytes, kLoanStream, block.number);
    const LoanHeader header = {block.number, block.bytes.size()};
    const SendStatus status =
        peer.am_send_loan(kLent, std::as_bytes(std::span(&header, 1)), block.bytes, &block);
    if (status != SendStatus::kPending) return;
    block.is_lent = true;
    ++ends_.started;
    outcomes_.push_back(kOpen);
  }
}

void Lender::take_unread(uint64_t number) noexcept {
  ++unread_;
  if (number >= outcomes_.size()) {
    report_fault("loan %" PRIu64 " was never lent", number);
  } else if (outcomes_[number] == static_cast<uint8_t>(Outcome::kDone)) {
    report_fault("loan %" PRIu64 " ended as done, and was not read", number);
  }
}

bool Lender::is_idle() const noexcept {
  return std::none_of(std::begin(blocks_), std::end(blocks_),
                      [](const Block& block) { return block.is_lent; });
}

Borrower::Borrower(Messenger& messenger) : messenger_(&messenger) {
  for (Read& read : reads_) {
    read.borrower = this;
    read.bytes.reserve(kLoanBytesMax);
    read.call = [](Completion& self, Outcome outcome) noexcept {
      Read& ended = static_cast<Read&>(self);
      ended.borrower->end(ended, outcome == Outcome::kDone);
    };
  }
}

void Borrower::take(const Message& message) noexcept {
  LoanHeader header = {};
  if (message.payload.size() != sizeof header || !message.loan.is_there()) {
    return report_fault("a loan without its header");
  }
  std::memcpy(&header, message.payload.data(), sizeof header);
  if (header.number < next_) report_fault("loan %" PRIu64 " came twice", header.number);
  if (header.bytes != message.loan.remote.bytes) report_fault("a loan of another length");
  for (uint64_t missed = next_; !is_new_ && missed < header.number; ++missed) {
    unread_.push_back(missed);
  }
  is_new_ = false;
  next_ = header.number + 1;
  for (Read& read : reads_) {
    if (read.state != Read::State::kFree) continue;
    read.state = Read::State::kDue;
    read.loan = message.loan;
    read.number = header.number;
    read.bytes.assign(message.loan.remote.bytes, std::byte{0xa5});
    return;
  }
  unread_.push_back(header.number);
  messenger_->release(message.loan);
}

void Borrower::step(Endpoint& peer, uint64_t lender) noexcept {
  for (Read& read : reads_) {
    if (read.state != Read::State::kDue) continue;
    const SendStatus status = peer.get(read.bytes, read.loan.remote, &read);
    if (status == SendStatus::kPending) read.state = Read::State::kReading;
    // The loan is lost with its connection.
    if (status == SendStatus::kRefused || status == SendStatus::kGone) end(read, false);
  }
  while (!unread_.empty()) {
    const UnreadLoan loan = {lender, unread_.back()};
    if (peer.am_send(kUnread, std::as_bytes(std::span(&loan, 1))) != SendStatus::kDone) return;
    unread_.pop_back();
  }
}

void Borrower::forget() noexcept {
  next_ = 0;
  is_new_ = true;
  unread_.clear();
}

void Borrower::end(Read& read, bool is_done) noexcept {
  if (is_done && !is_filled(read.bytes, kLoanStream, read.number)) {
    report_fault("loan %" PRIu64 " was read, and is not what was lent", read.number);
  }
  if (is_done) ++read_;
  if (!is_done) unread_.push_back(read.number);
  messenger_->release(read.loan);
  read.state = Read::State::kFree;
}

bool Borrower::is_idle() const noexcept {
  return unread_.empty() && std::all_of(std::begin(reads_), std::end(reads_), [](const Read& read) {
           return read.state == Read::State::kFree;
         });
}

}  // namespace bedplate::traffic
