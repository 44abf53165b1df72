#include "transport/messages/messenger.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "platform/assert.h"

namespace bedplate {

namespace {

struct TellNumber {
  uint32_t token = 0;
  int32_t number = -1;
};

}  // namespace

Messenger::Messenger() noexcept {
  set_handler(kAskNumberAm, {[](void* self, const Message& message) noexcept {
                               static_cast<Messenger*>(self)->hear_question(message);
                             },
                             this});
  set_handler(kTellNumberAm, {[](void* self, const Message& message) noexcept {
                                static_cast<Messenger*>(self)->hear_answer(message);
                              },
                              this});
}

void Messenger::follow(const ThreadOwner& loop) noexcept {
  BP_ASSERT(providers_.empty() && loop_ == nullptr);
  loop_ = &loop;
  owner_.follow(loop);
}

bool Messenger::is_valid() const noexcept {
  uint32_t count = 0;
  const RoomCall* last = nullptr;
  for (const RoomCall* each = rooms_; each != nullptr; last = each, each = each->next) {
    if (!each->is_waiting() || each->call == nullptr || ++count > room_count_) return false;
  }
  if (count != room_count_ || (count > 0 && last != last_room_)) return false;
  if (polled_.size() != providers_.size() || active_count_ > polled_.size()) return false;
  if (!polled_.empty() && (active_count_ == 0 || polls_to_look_ == 0)) return false;
  for (const NumberQuery* each = queries_; each != nullptr; each = each->next) {
    if (each->peer == nullptr || each->answered == nullptr) return false;
    for (const NumberQuery* other = each->next; other != nullptr; other = other->next) {
      if (other->token == each->token) return false;
    }
  }
  for (uint32_t i = 0; i < answer_count_; ++i) {
    if (answers_[i].to == nullptr || answer_count_to(*answers_[i].to) > kAnswersPerPeerMax) {
      return false;
    }
  }
  return answer_count_ <= kAnswerCountMax;
}

void Messenger::add_provider(Provider& provider) {
  BP_REQUIRE_THREAD(owner_.is_caller(), "Messenger::add_provider");
  BP_REQUIRE(!is_polling_, "a callback of a poll adds a provider: Messenger::add_provider");
  if (loop_ != nullptr) provider.follow(*loop_);
  providers_.push_back(&provider);
  polled_.push_back({&provider});
  active_count_ = static_cast<uint32_t>(polled_.size());
}

Result<Endpoint*> Messenger::connect(const PeerAddress& peer, std::string* why) {
  BP_REQUIRE_THREAD(loop_ == nullptr || loop_->is_caller(), "Messenger::connect");
  // One provider: its own error. Several: each one's answer, and the last one's cure.
  Error last;
  char answers[sizeof last.answer] = {};
  size_t used = 0;
  for (Provider* provider : providers_) {
    auto endpoint = provider->connect(peer);
    if (endpoint.ok()) {
      if (why != nullptr) {
        *why =
            endpoint.value()->provider_name() + std::string(used == 0 ? "" : ", since ") + answers;
      }
      return endpoint;
    }
    last = endpoint.error();
    const int printed = std::snprintf(answers + used, sizeof answers - used, "%s%s: %s",
                                      used == 0 ? "" : "; ", provider->name(), last.answer);
    used = std::min(used + static_cast<size_t>(printed), sizeof answers - 1);
  }
  if (providers_.empty()) {
    last.set_doing("connecting to a peer");
    last.set_answer("this messenger has no providers");
    return last.set_cure("add one (Messenger::add_provider)");
  }
  last.set_answer("%s", answers);
  return last;
}

SendStatus Messenger::ask_number(Endpoint& peer, std::string_view name,
                                 NumberQuery& query) noexcept {
  BP_DREQUIRE_THREAD(owner_.is_caller(), "Messenger::ask_number");
  BP_KEEPS_VALID(*this);
  BP_REQUIRE(query.answered != nullptr,
             "a question has no function for its answer: NumberQuery::answered");
  struct {
    uint32_t token;
    char name[kMessageNameMax];
  } question = {last_token_ + 1, {}};
  if (name.size() > sizeof question.name) return SendStatus::kTooLong;
  std::memcpy(question.name, name.data(), name.size());
  const auto status = peer.am_send(
      kAskNumberAm,
      std::as_bytes(std::span(&question, 1)).first(sizeof question.token + name.size()));
  if (status != SendStatus::kDone) return status;
  query.peer = &peer;
  query.token = ++last_token_;
  query.next = queries_;
  queries_ = &query;
  return status;
}

void Messenger::take_back(NumberQuery& query) noexcept {
  BP_DREQUIRE_THREAD(owner_.is_caller(), "Messenger::take_back");
  BP_KEEPS_VALID(*this);
  for (NumberQuery** link = &queries_; *link != nullptr; link = &(*link)->next) {
    if (*link != &query) continue;
    *link = query.next;
    return;
  }
}

void Messenger::hear_question(const Message& message) noexcept {
  release(message.loan);  // a loan has no use here
  Answer answer;
  if (message.payload.size() < sizeof answer.token) return;
  std::memcpy(&answer.token, message.payload.data(), sizeof answer.token);
  const auto text = message.payload.subspan(sizeof answer.token);
  const std::string_view name(reinterpret_cast<const char*>(text.data()), text.size());
  const auto number = names_ != nullptr ? names_->find(name) : std::nullopt;
  if (number) answer.number = *number;
  answer.to = &message.from;
  if (send(answer) != SendStatus::kAgain) return;
  if (answer_count_ == kAnswerCountMax || answer_count_to(message.from) == kAnswersPerPeerMax) {
    return;
  }
  answers_[answer_count_++] = answer;
  room_wait_.begin();
}

SendStatus Messenger::send(const Answer& answer) noexcept {
  const TellNumber told = {answer.token, answer.number};
  return answer.to->am_send(kTellNumberAm, std::as_bytes(std::span(&told, 1)));
}

uint32_t Messenger::answer_count_to(const Endpoint& peer) const noexcept {
  return static_cast<uint32_t>(
      std::count_if(answers_, answers_ + answer_count_,
                    [&peer](const Answer& each) { return each.to == &peer; }));
}

// Sends the answers that found no space before.
uint32_t Messenger::send_answers() noexcept {
  uint32_t left = 0;
  const uint32_t before = answer_count_;
  for (uint32_t i = 0; i < before; ++i) {
    if (send(answers_[i]) == SendStatus::kAgain) answers_[left++] = answers_[i];
  }
  answer_count_ = left;
  if (left < before) room_wait_.begin();
  return before - left;
}

// Accepts an answer only from the peer that was asked, and only to the pending question.
void Messenger::hear_answer(const Message& message) noexcept {
  release(message.loan);
  TellNumber told;
  if (message.payload.size() != sizeof told) return;
  std::memcpy(&told, message.payload.data(), sizeof told);
  NumberQuery* query = queries_;
  while (query != nullptr && (query->token != told.token || query->peer != &message.from)) {
    query = query->next;
  }
  if (query == nullptr) return;
  take_back(*query);
  const bool is_named = told.number >= kFirstNamedAm && told.number < kAskNumberAm;
  query->answered(*query, is_named ? std::optional(static_cast<AmId>(told.number)) : std::nullopt);
}

void Messenger::notify_room(Endpoint& to, RoomCall& room) noexcept {
  BP_DREQUIRE_THREAD(owner_.is_caller(), "Messenger::notify_room");
  BP_REQUIRE(!room.is_waiting() && room.call != nullptr,
             "a call for room waits already, or has no function: Messenger::notify_room");
  append(to, room);
  room_wait_.begin();
}

void Messenger::append(Endpoint& to, RoomCall& room) noexcept {
  BP_KEEPS_VALID(*this);
  room.to = &to;
  room.next = nullptr;
  room.round = room_round_;
  (rooms_ == nullptr ? rooms_ : last_room_->next) = &room;
  last_room_ = &room;
  ++room_count_;
}

void Messenger::take_back(RoomCall& room) noexcept {
  BP_DREQUIRE_THREAD(owner_.is_caller(), "Messenger::take_back");
  BP_KEEPS_VALID(*this);
  RoomCall* before = nullptr;
  for (RoomCall* each = rooms_; each != nullptr; before = each, each = each->next) {
    if (each != &room) continue;
    (before == nullptr ? rooms_ : before->next) = room.next;
    if (last_room_ == &room) last_room_ = before;
    room.to = nullptr;
    --room_count_;
    return;
  }
}

// Calls each waiting caller at most once: those without space, and those that ask again, go to the
// end. Only callers that do not ask again count as work, so that a loop in which nobody makes
// progress sleeps. The waiting time starts anew when a caller is called: if it asks again, it has
// tried, and may have filled a queue (notify_room).
uint32_t Messenger::call_rooms() noexcept {
  const uint32_t before = room_count_;
  ++room_round_;
  while (rooms_ != nullptr && rooms_->round != room_round_) {
    RoomCall& room = *rooms_;
    Endpoint& to = *room.to;
    take_back(room);
    if (to.has_room()) {
      room.call(room);
    } else {
      append(to, room);
    }
  }
  if (room_count_ >= before) return 0;
  room_wait_.begin();
  return before - room_count_;
}

uint32_t Messenger::poll(uint32_t budget) noexcept {
#if BP_DEBUG
  BP_REQUIRE_THREAD(owner_.is_caller(), "Messenger::poll");
  const ThreadOwner::Hold hold(owner_);
#endif
  BP_REQUIRE(!is_polling_,
             "a handler or another callback of a poll polls its messenger: it returns "
             "instead (Messenger::poll, wait; bp_poll, bp_wait)");
  is_polling_ = true;
  uint32_t count = 0;
  for (uint32_t i = 0; i < active_count_; ++i) {
    const uint32_t found = polled_[i].provider->poll(budget);
    if (found == 0) continue;
    polled_[i].has_found = true;
    count += found;
  }
  if (BP_UNLIKELY(answer_count_ != 0)) count += send_answers();
  if (BP_UNLIKELY(rooms_ != nullptr)) count += call_rooms();
  if (BP_UNLIKELY(--polls_to_look_ == 0)) count += look_around(budget);
  is_polling_ = false;
  return count;
}

uint32_t Messenger::look_around(uint32_t budget) noexcept {
  polls_since_sorted_ += look_interval_;
  const uint32_t found = active_count_ < polled_.size() ? poll_a_quiet_one(budget) : 0;
  if (polls_since_sorted_ >= kQuietPolls) find_quiet_ones();
  polls_to_look_ = look_interval_;
  BP_DCHECK_SLOW(is_valid());
  return found;
}

uint32_t Messenger::poll_a_quiet_one(uint32_t budget) noexcept {
  if (++turn_ >= polled_.size() || turn_ < active_count_) turn_ = active_count_;
  const uint32_t found = polled_[turn_].provider->poll(budget);
  if (found > 0) {
    polled_[turn_].has_found = true;
    std::swap(polled_[turn_], polled_[active_count_++]);
    look_interval_ = kPollsPerQuietOne;
  }
  return found;
}

// Moves providers that found nothing since the last sorting behind the active ones, but for one.
void Messenger::find_quiet_ones() noexcept {
  polls_since_sorted_ = 0;
  look_interval_ = 1;
  for (uint32_t i = active_count_; i-- > 0;) {
    if (std::exchange(polled_[i].has_found, false)) {
      look_interval_ = kPollsPerQuietOne;
    } else if (active_count_ > 1) {
      std::swap(polled_[i], polled_[--active_count_]);
    }
  }
}

// Polls all providers in the last look before the sleep, and in the first ones after it, since any
// of them may have rung.
void Messenger::announce_sleep() noexcept {
  for (Provider* provider : providers_) provider->announce_sleep();
  prepare_last_look();
}

void Messenger::prepare_last_look() noexcept {
  for (Polled& one : polled_) one.has_found = true;
  active_count_ = static_cast<uint32_t>(polled_.size());
}

void Messenger::announce_awake() noexcept {
  for (Provider* provider : providers_) provider->announce_awake();
}

void Messenger::wait(uint64_t timeout_ns) noexcept {
  Provider* sleeper = nullptr;
  for (Provider* provider : providers_) {
    if (provider->can_sleep()) sleeper = provider;
  }
  BP_REQUIRE(sleeper != nullptr, "a messenger waits that no provider wakes, as a shard's: "
                                 "Messenger::wait");
  announce_sleep();
  // Polls once more: from here on a sender wakes us.
  if (poll(kLastLookBudget) == 0) sleeper->sleep(std::min(timeout_ns, sleep_max_ns()));
  announce_awake();
}

}  // namespace bedplate
