#include "transport/message_answers_datapath.h"

#include <algorithm>

namespace bedplate {

void MessageAnswers::create(const MessageAnswersOptions& options) noexcept {
  options_ = options;
  const auto handler = [](void* self, const Message& message) noexcept {
    static_cast<MessageAnswers*>(self)->ask(message);
  };
  options.messenger->set_handler(options.question, {handler, this});
}

// Returns whether it is off our hands.
bool MessageAnswers::is_answered(const Message& question) noexcept {
  const Verdict verdict = answer(question);
  if (verdict == Verdict::kDropped) options_.dropped->add(1);
  return verdict != Verdict::kAgain;
}

// In their order: one that finds no room holds up those behind it.
void MessageAnswers::ask(const Message& message) noexcept {
  if (waiting_ == 0 && is_answered(message)) return;
  if (waiting_ == kWaitingMax || message.payload.size() > kQuestionBytesMax) {
    return options_.dropped->add(1);
  }
  Question& place = questions_[(first_ + waiting_++) % kWaitingMax];
  place.from = &message.from;
  place.bytes = static_cast<uint32_t>(message.payload.size());
  std::copy(message.payload.begin(), message.payload.end(), place.payload);
}

uint32_t MessageAnswers::poll(uint32_t budget) noexcept {
  uint32_t count = 0;
  for (; count < budget && waiting_ > 0; ++count) {
    const Question& next = questions_[first_];
    if (!is_answered({*next.from, options_.question, {next.payload, next.bytes}, {}})) break;
    first_ = (first_ + 1) % kWaitingMax;
    --waiting_;
  }
  return count;
}

SendStatus MessageAnswers::lend(Endpoint& to, AmId id, std::span<const std::byte> header,
                                std::span<std::byte> block, void* loan) noexcept {
  Lent* const place =
      std::find_if(lent_, lent_ + kLoansMax, [](const Lent& one) { return one.self == nullptr; });
  const bool is_too_much = lent_bytes_ > 0 && lent_bytes_ + block.size() > options_.lent_bytes_max;
  if (place == lent_ + kLoansMax || is_too_much) return SendStatus::kAgain;
  place->call = [](Completion& completed, Outcome) noexcept {
    auto& its = static_cast<Lent&>(completed);
    MessageAnswers& self = *its.self;
    its.self = nullptr;
    self.lent_bytes_ -= its.bytes;
    --self.lent_count_;
    self.returned(its.loan);
  };
  const auto status = to.am_send_loan(id, header, block, place);
  if (status != SendStatus::kPending) return status;
  place->self = this;
  place->loan = loan;
  place->bytes = block.size();
  lent_bytes_ += block.size();
  ++lent_count_;
  return status;
}

}  // namespace bedplate
