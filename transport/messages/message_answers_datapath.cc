#include "transport/messages/message_answers_datapath.h"

#include <algorithm>
#include <iterator>

#include "platform/assert.h"

namespace bedplate {

bool MessageAnswers::is_valid() const noexcept {
  uint32_t count = 0;
  uint64_t bytes = 0;
  for (const Lent& each : lent_) {
    if (each.self == nullptr) continue;
    if (each.self != this || each.to == nullptr) return false;
    ++count;
    bytes += each.bytes;
    const auto its = std::count_if(std::begin(lent_), std::end(lent_), [&](const Lent& other) {
      return other.self != nullptr && other.to == each.to;
    });
    if (its > kLoansPerPeerMax) return false;
  }
  if (count != lent_count_ || bytes != lent_bytes_ || waiting_ > kWaitingMax) return false;
  for (uint32_t i = 0; i < waiting_; ++i) {
    const Question& each = questions_[i];
    if (each.from == nullptr || each.bytes > kQuestionBytesMax) return false;
    if (count_of(*each.from, {questions_, waiting_}) > kWaitingPerPeerMax) return false;
  }
  return true;
}

void MessageAnswers::create(const MessageAnswersOptions& options) noexcept {
  BP_REQUIRE(
      options_.messenger == nullptr && options.messenger != nullptr && options.dropped != nullptr,
      "answers by message are created twice, or without messenger or counter: "
      "MessageAnswers::create");
  options_ = options;
  const auto handler = [](void* self, const Message& message) noexcept {
    static_cast<MessageAnswers*>(self)->ask(message);
  };
  options.messenger->set_handler(options.question, {handler, this});
}

// Returns true if the question need not wait.
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

// Answers the questions of one peer in order: a question without space holds up the later ones.
void MessageAnswers::ask(const Message& message) noexcept {
  BP_KEEPS_VALID(*this);
  const uint32_t its = count_of(message.from, {questions_, waiting_});
  // Otherwise the loan would also keep its lender's place occupied, even after the lender died.
  options_.messenger->release(message.loan);
  if (its == 0 && is_answered({message.from, message.id, message.payload, {}})) return;
  if (waiting_ == kWaitingMax || its == kWaitingPerPeerMax ||
      message.payload.size() > kQuestionBytesMax) {
    return options_.dropped->add(1);
  }
  Question& question = questions_[waiting_++];
  question.from = &message.from;
  question.bytes = static_cast<uint32_t>(message.payload.size());
  std::copy(message.payload.begin(), message.payload.end(), question.payload);
  room_wait_.begin();
}

uint32_t MessageAnswers::poll(uint32_t budget) noexcept {
  BP_DCHECK_SLOW(is_valid());
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
  BP_ASSERT(left + count == waiting_);
  waiting_ = left;
  BP_DCHECK_SLOW(is_valid());
  if (count > 0) room_wait_.begin();
  return count;
}

SendStatus MessageAnswers::lend(Endpoint& to, AmId id, std::span<const std::byte> header,
                                std::span<std::byte> block, void* loan) noexcept {
  BP_KEEPS_VALID(*this);
  Lent* entry = nullptr;
  uint32_t its_count = 0;
  uint64_t its_bytes = 0;
  uint32_t seen = 0;
  for (Lent& each : lent_) {
    if (entry != nullptr && seen == lent_count_) break;
    if (each.self == nullptr) {
      if (entry == nullptr) entry = &each;
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
  if (entry == nullptr || its_count == kLoansPerPeerMax || is_too_much) return SendStatus::kAgain;
  entry->call = [](Completion& completed, Outcome) noexcept {
    auto& its = static_cast<Lent&>(completed);
    BP_ASSERT(its.self != nullptr);  // it comes back once
    MessageAnswers& self = *its.self;
    BP_ASSERT(self.lent_count_ > 0 && self.lent_bytes_ >= its.bytes);
    its.self = nullptr;
    self.lent_bytes_ -= its.bytes;
    --self.lent_count_;
    BP_DCHECK_SLOW(self.is_valid());
    self.returned(its.loan);
  };
  const auto status = to.am_send_loan(id, header, block, entry);
  if (status != SendStatus::kPending) return status;
  entry->self = this;
  entry->to = &to;
  entry->loan = loan;
  entry->bytes = block.size();
  lent_bytes_ += block.size();
  ++lent_count_;
  return status;
}

}  // namespace bedplate
