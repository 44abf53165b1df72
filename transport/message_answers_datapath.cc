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

uint32_t MessageAnswers::count_of(const Endpoint& peer,
                                  std::span<const Question> questions) noexcept {
  return static_cast<uint32_t>(
      std::count_if(questions.begin(), questions.end(),
                    [&peer](const Question& each) { return each.from == &peer; }));
}

// Those of one peer in their order: one that finds no room holds up those behind it.
void MessageAnswers::ask(const Message& message) noexcept {
  const uint32_t its = count_of(message.from, {questions_, waiting_});
  // Kept, a loan would keep its lender's place as well, also when that has died.
  options_.messenger->release(message.loan);
  if (its == 0 && is_answered({message.from, message.id, message.payload, {}})) return;
  if (waiting_ == kWaitingMax || its == kWaitingPerPeerMax ||
      message.payload.size() > kQuestionBytesMax) {
    return options_.dropped->add(1);
  }
  Question& place = questions_[waiting_++];
  place.from = &message.from;
  place.bytes = static_cast<uint32_t>(message.payload.size());
  std::copy(message.payload.begin(), message.payload.end(), place.payload);
  room_wait_.begin();
}

uint32_t MessageAnswers::poll(uint32_t budget) noexcept {
  uint32_t count = 0;
  uint32_t left = 0;
  for (uint32_t i = 0; i < waiting_; ++i) {
    const Question& next = questions_[i];
    const bool may_try = count < budget && count_of(*next.from, {questions_, left}) == 0;
    if (may_try && is_answered({*next.from, options_.question, {next.payload, next.bytes}, {}})) {
      ++count;
      continue;
    }
    if (left != i) questions_[left] = next;
    ++left;
  }
  waiting_ = left;
  if (count > 0) room_wait_.begin();
  return count;
}

SendStatus MessageAnswers::lend(Endpoint& to, AmId id, std::span<const std::byte> header,
                                std::span<std::byte> block, void* loan) noexcept {
  Lent* place = nullptr;
  uint32_t its_count = 0;
  uint64_t its_bytes = 0;
  uint32_t seen = 0;
  for (Lent& each : lent_) {
    if (place != nullptr && seen == lent_count_) break;
    if (each.self == nullptr) {
      if (place == nullptr) place = &each;
      continue;
    }
    ++seen;
    if (each.to != &to) continue;
    ++its_count;
    its_bytes += each.bytes;
  }
  const uint64_t most = options_.lent_bytes_max;
  const bool is_too_much = (lent_bytes_ > 0 && lent_bytes_ + block.size() > most) ||
                           (its_bytes > 0 && its_bytes + block.size() > most / 2);
  if (place == nullptr || its_count == kLoansPerPeerMax || is_too_much) return SendStatus::kAgain;
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
  place->to = &to;
  place->loan = loan;
  place->bytes = block.size();
  lent_bytes_ += block.size();
  ++lent_count_;
  return status;
}

}  // namespace bedplate
