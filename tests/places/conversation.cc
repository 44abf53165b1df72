#include "tests/places/conversation.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace bedplate {
namespace {

// Inline, of several lines, and as long as a message may be.
constexpr size_t kEchoBytes[] = {1, 8, 47, 48, 100, 1000, 4000, 8000};
constexpr uint64_t kPutBytes = 3000;
constexpr uint64_t kWordOffset = 4096;

std::span<const std::byte> bytes_of(const std::string& text) noexcept {
  return std::as_bytes(std::span(text));
}
std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::string sum_of(std::string_view bytes) {
  uint64_t sum = 0;
  for (const char byte : bytes) sum = sum * 31 + static_cast<uint8_t>(byte);
  return std::to_string(sum);
}

}  // namespace

// ---- The side that answers. The first byte of a question is the number of its answer ----

void Answerer::create(Messenger& messenger, const AmId (&numbers)[3], std::span<std::byte> area) {
  messenger_ = &messenger;
  area_ = area;
  messenger.set_handler(numbers[0], {[](void* self, const Message& message) noexcept {
                                       static_cast<Answerer*>(self)->echo(message);
                                     },
                                     this});
  messenger.set_handler(numbers[1], {[](void* self, const Message& message) noexcept {
                                       static_cast<Answerer*>(self)->borrow(message);
                                     },
                                     this});
  messenger.set_handler(numbers[2], {[](void* self, const Message& message) noexcept {
                                       static_cast<Answerer*>(self)->describe(message);
                                     },
                                     this});
}

void Answerer::reply(Endpoint& to, AmId id, std::string bytes) noexcept {
  replies_.push_back({&to, id, std::move(bytes)});
}

void Answerer::echo(const Message& message) noexcept {
  if (message.payload.empty()) return;
  reply(message.from, static_cast<AmId>(message.payload[0]), text_of(message.payload));
}

void Answerer::describe(const Message& message) noexcept {
  if (message.payload.empty()) return;
  auto described = message.from.expose(area_);
  const std::string text = described.ok() ? text_of(std::as_bytes(std::span(&described.value(), 1)))
                                          : described.error().answer;
  reply(message.from, static_cast<AmId>(message.payload[0]), text);
}

void Answerer::borrow(const Message& message) noexcept {
  if (message.payload.empty() || !message.loan.is_there()) return;
  auto borrowed = std::make_unique<Borrowed>();
  borrowed->self = this;
  borrowed->from = &message.from;
  borrowed->reply = static_cast<AmId>(message.payload[0]);
  borrowed->loan = message.loan;
  borrowed->call = [](Completion& self, Outcome) noexcept {
    static_cast<Borrowed&>(self).is_here = true;
  };
  borrowed_.push_back(std::move(borrowed));
}

uint32_t Answerer::poll() noexcept {
  uint32_t count = 0;
  for (auto& borrowed : borrowed_) {
    Loan& loan = borrowed->loan;
    if (!borrowed->is_asked && !loan.memory.empty()) {
      borrowed->copy = text_of(loan.memory);
      borrowed->is_asked = borrowed->is_here = true;
    } else if (!borrowed->is_asked) {
      borrowed->copy.resize(loan.remote.bytes);
      const auto status = borrowed->from->get(std::as_writable_bytes(std::span(borrowed->copy)),
                                              loan.remote, borrowed.get());
      borrowed->is_asked = status != SendStatus::kAgain;
      borrowed->is_here = borrowed->is_asked && status != SendStatus::kPending;
    }
    if (!borrowed->is_here) continue;
    messenger_->release(loan);
    reply(*borrowed->from, borrowed->reply, sum_of(borrowed->copy));
    borrowed.reset();
    ++count;
  }
  std::erase(borrowed_, nullptr);
  std::erase_if(replies_, [&count](const Reply& one) {
    const bool is_sent = one.to->am_send(one.id, bytes_of(one.bytes)) != SendStatus::kAgain;
    count += is_sent;
    return is_sent;
  });
  return count;
}

// ---- The side that asks ----

Conversation::Conversation(Messenger& messenger, std::string peer, AmId reply,
                           std::span<std::byte> lent)
    : messenger_(messenger), peer_name_(std::move(peer)), reply_(reply), lent_(lent) {
  messenger.set_handler(reply, {[](void* self, const Message& message) noexcept {
                                  static_cast<Conversation*>(self)->heard(message);
                                },
                                this});
  for (Named& named : named_) {
    named.answered = [](NumberQuery& self, std::optional<AmId> number) noexcept {
      auto& one = static_cast<Named&>(self);
      one.is_answered = true;
      one.number = number;
    };
  }
  done_.call = [](Completion& self, Outcome outcome) noexcept {
    static_cast<Done&>(self).is_done = true;
    static_cast<Done&>(self).is_good = outcome == Outcome::kDone;
  };
}

Conversation::~Conversation() {
  messenger_.set_handler(reply_, {});
  for (Named& named : named_) messenger_.take_back(named);
}

void Conversation::heard(const Message& message) noexcept {
  heard_ = text_of(message.payload);
  has_heard_ = true;
}

bool Conversation::end(const std::string& text) noexcept {
  report_ = peer_name_ + " by " + why_ + ": " + text;
  return next(Step::kOver);
}

std::string Conversation::message_of(size_t bytes) const {
  std::string message(bytes, static_cast<char>(reply_));
  for (size_t i = 1; i < bytes; ++i) message[i] = static_cast<char>('a' + (i * 7 + bytes) % 26);
  return message;
}

bool Conversation::connect() noexcept {
  auto endpoint = messenger_.connect({.name = peer_name_.c_str()}, &why_);
  if (!endpoint.ok()) return false;  // not there yet
  peer_ = endpoint.value();
  return next(Step::kNames);
}

bool Conversation::learn_names() noexcept {
  for (size_t i = 0; i < std::size(named_); ++i) {
    Named& named = named_[i];
    if (named.is_answered && !named.number) {
      return end(std::string("it has no message places.") + Answerer::kNames[i]);
    }
    if (named.is_answered) continue;
    if (named.is_asked) return false;
    const std::string name = std::string("places.") + Answerer::kNames[i];
    named.is_asked = messenger_.ask_number(*peer_, name, named) == SendStatus::kDone;
    return named.is_asked;
  }
  return next(Step::kEcho);
}

bool Conversation::send_echo() noexcept {
  const size_t most = peer_->limits().am_bytes_max;
  if (echo_ == std::size(kEchoBytes) || kEchoBytes[echo_] > most) return next(Step::kLend);
  has_heard_ = false;
  const std::string message = message_of(kEchoBytes[echo_]);
  if (peer_->am_send(*named_[0].number, bytes_of(message)) != SendStatus::kDone) return false;
  return next(Step::kEchoed);
}

bool Conversation::check_echo() noexcept {
  if (!has_heard_) return false;
  if (heard_ != message_of(kEchoBytes[echo_])) return end("an echo is not what was sent");
  ++echo_;
  ++echo_count_;
  return next(Step::kEcho);
}

// Lends the memory. If the peer cannot reach it, the loan is refused, and the report says so.
bool Conversation::lend() noexcept {
  for (size_t i = 0; i < lent_.size(); ++i) lent_[i] = static_cast<std::byte>(i * 13);
  const std::string header(1, static_cast<char>(reply_));
  has_heard_ = done_.is_done = false;
  const auto status = peer_->am_send_loan(*named_[1].number, bytes_of(header), lent_, &done_);
  if (status == SendStatus::kAgain) return false;
  report_ = "echo " + std::to_string(echo_count_);
  if (status == SendStatus::kRefused) {
    report_ += ", no loan";
    done_.is_done = true;
    return next(Step::kArea);
  }
  done_.is_done = status == SendStatus::kDone;
  report_ += ", lent";
  return next(Step::kLent);
}

bool Conversation::ask_area() noexcept {
  has_heard_ = false;
  const std::string question(1, static_cast<char>(reply_));
  if (peer_->am_send(*named_[2].number, bytes_of(question)) != SendStatus::kDone) return false;
  return next(Step::kDescribed);
}

bool Conversation::take_description() noexcept {
  if (!has_heard_) return false;
  if (heard_.size() != sizeof area_) return end("the area is not exposed: " + heard_);
  std::memcpy(&area_, heard_.data(), sizeof area_);
  put_ = message_of(kPutBytes);
  got_.assign(kPutBytes, '\0');
  done_ = {done_, true, true};
  return next(Step::kPut);
}

// Takes the status of a put, a get or an addition. False: it was not started, try again.
bool Conversation::operate(SendStatus status, const char* what) noexcept {
  if (status == SendStatus::kAgain) return false;
  if (status != SendStatus::kDone && status != SendStatus::kPending) {
    return end(report_ + ", " + what + " " + to_text(status));
  }
  done_.is_done = status == SendStatus::kDone;
  report_ += std::string(", ") + what;
  return next(static_cast<Step>(static_cast<int>(step_) + 1));
}

uint32_t Conversation::poll() noexcept {
  bool has_moved = false;
  if (!done_.is_done && step_ != Step::kLent) return 0;
  switch (step_) {
    case Step::kConnect: has_moved = connect(); break;
    case Step::kNames: has_moved = learn_names(); break;
    case Step::kEcho: has_moved = send_echo(); break;
    case Step::kEchoed: has_moved = check_echo(); break;
    case Step::kLend: has_moved = lend(); break;
    case Step::kLent:
      if (!has_heard_ || !done_.is_done) break;
      has_moved = heard_ == sum_of(text_of(lent_)) ? next(Step::kArea)
                                                   : end("what was lent was not what arrived");
      break;
    case Step::kArea: has_moved = ask_area(); break;
    case Step::kDescribed: has_moved = take_description(); break;
    case Step::kPut:
      has_moved = operate(peer_->put(bytes_of(put_), area_.part(0, kPutBytes), &done_), "put");
      break;
    case Step::kGet:
      has_moved = operate(
          peer_->get(std::as_writable_bytes(std::span(got_)), area_.part(0, kPutBytes), &done_),
          "get");
      break;
    case Step::kAdd:
      if (!done_.is_good || got_ != put_) {
        has_moved = end("what was put is not what was got");
        break;
      }
      has_moved = operate(peer_->fetch_add(area_.part(kWordOffset, 8), 1, &before_, &done_), "add");
      if (step_ == Step::kOver && !report_.empty() && !report_.starts_with(peer_name_ + " by")) {
        end(report_ + ": good");
      }
      break;
    case Step::kOver: break;
  }
  return has_moved;
}

}  // namespace bedplate
