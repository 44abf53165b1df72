#include "apps/kvd/message_gets_datapath.h"

#include <algorithm>

namespace bedplate::kvd {
namespace {

constexpr uint32_t kAnswerBytesMax = 8 * 1024;  // of one message, whatever the way allows

}  // namespace

void MessageGets::create(Messenger& messenger, AmId get, const SessionEnvironment& environment,
                         const EventLoop& loop) noexcept {
  environment_ = environment;
  loop_ = &loop;
  for (Lent& place : lent_) {
    place.self = this;
    place.call = &MessageGets::returned;
  }
  messenger.set_handler(get, {[](void* self, const Message& message) noexcept {
                                static_cast<MessageGets*>(self)->ask(message);
                              },
                              this});
}

// In their order: one that finds no room holds up those behind it.
void MessageGets::ask(const Message& message) noexcept {
  const size_t key_bytes = message.payload.size() - kHeadBytes;
  if (message.payload.size() <= kHeadBytes || key_bytes > kKeyBytesMax) {
    return environment_.counters->messages_dropped.add(1);
  }
  if (waiting_ == kWaitingMax) return environment_.counters->messages_dropped.add(1);
  Question& question = questions_[(first_ + waiting_) % kWaitingMax];
  const auto* bytes = reinterpret_cast<const char*>(message.payload.data());
  question.from = &message.from;
  question.reply = static_cast<AmId>(bytes[0]);
  question.key_bytes = static_cast<uint8_t>(key_bytes);
  std::memcpy(question.tag, bytes + 1, sizeof question.tag);
  std::memcpy(question.key, bytes + kHeadBytes, key_bytes);
  if (waiting_ == 0 && answer(question)) return;
  ++waiting_;
}

uint32_t MessageGets::poll(uint32_t budget) noexcept {
  uint32_t count = 0;
  for (; count < budget && waiting_ > 0 && answer(questions_[first_]); ++count) {
    first_ = (first_ + 1) % kWaitingMax;
    --waiting_;
  }
  return count;
}

// Returns false where there is no room for the answer now.
bool MessageGets::answer(const Question& question) noexcept {
  environment_.store->set_time(loop_->now_ns());
  Item* item = environment_.store->find({question.key, question.key_bytes});
  const bool is_sent =
      item != nullptr ? answer_with(question, *item) : send(question, Answer::kNone, "");
  if (!is_sent) return false;
  environment_.counters->gets.add(1);
  (item != nullptr ? environment_.counters->hits : environment_.counters->misses).add(1);
  return true;
}

bool MessageGets::answer_with(const Question& question, Item& item) noexcept {
  const std::string_view value(item.value(), item.value_bytes);
  if (value.size() <= kCopyMax) return send(question, Answer::kFound, value);
  const SendStatus status = lend(question, item);
  if (status == SendStatus::kAgain) return false;
  if (status != SendStatus::kRefused) return true;  // or there is nobody any more
  const uint32_t most = std::min(question.from->limits().am_bytes_max, kAnswerBytesMax);
  const bool fits = value.size() + kHeadBytes <= most;
  return send(question, fits ? Answer::kFound : Answer::kUnreachable, fits ? value : "");
}

bool MessageGets::send(const Question& question, Answer answer, std::string_view value) noexcept {
  char text[kAnswerBytesMax];
  std::memcpy(text, question.tag, sizeof question.tag);
  text[sizeof question.tag] = static_cast<char>(answer);
  std::copy(value.begin(), value.end(), text + kHeadBytes);
  const auto status = question.from->am_send(
      question.reply, std::as_bytes(std::span(text, kHeadBytes + value.size())));
  return status != SendStatus::kAgain;
}

SendStatus MessageGets::lend(const Question& question, Item& item) noexcept {
  Lent* const place =
      std::find_if(lent_, lent_ + kLoansMax, [](const Lent& one) { return one.item == nullptr; });
  const bool is_too_much =
      lent_bytes_ > 0 && lent_bytes_ + item.value_bytes > environment_.store->memory_bytes() / 8;
  if (place == lent_ + kLoansMax || is_too_much) return SendStatus::kAgain;
  char header[kHeadBytes];
  std::memcpy(header, question.tag, sizeof question.tag);
  header[sizeof question.tag] = static_cast<char>(Answer::kFound);
  auto* value = reinterpret_cast<std::byte*>(item.value());
  const auto status = question.from->am_send_loan(question.reply, std::as_bytes(std::span(header)),
                                                  {value, item.value_bytes}, place);
  if (status != SendStatus::kPending) return status;
  environment_.store->pin(item);
  place->item = &item;
  lent_bytes_ += item.value_bytes;
  ++lent_count_;
  return status;
}

void MessageGets::returned(Completion& lent, Outcome) noexcept {
  auto& place = static_cast<Lent&>(lent);
  MessageGets& self = *place.self;
  self.environment_.store->release(*place.item);
  self.lent_bytes_ -= place.item->value_bytes;
  --self.lent_count_;
  place.item = nullptr;
}

}  // namespace bedplate::kvd
