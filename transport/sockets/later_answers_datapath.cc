#include "transport/sockets/later_answers_datapath.h"

#include <charconv>

#include "transport/sockets/stream_replies_datapath.h"
#include "transport/sockets/stream_session_datapath.h"

namespace bedplate {

bool LaterAnswer::is_wanted() const noexcept { return !session_->has_left(); }

void LaterAnswer::say_number(uint64_t number) noexcept {
  char digits[20];
  say({digits, static_cast<size_t>(std::to_chars(digits, std::end(digits), number).ptr - digits)});
}

void LaterAnswer::finish(uint64_t now_ns) noexcept {
  StreamSession& session = *session_;
  session.later_.finish(*this);
  if (session.is_running_) return;  // finished within a step, which goes on with it
  if (!session.has_left_) session.run(now_ns);
  const StreamSession::Owner& owner = session.owner_;
  if (owner.changed != nullptr) owner.changed(owner.context);
}

void LaterAnswer::begin(uint64_t received_ns) noexcept {
  BP_ASSERT(state_ == State::kSpare);
  state_ = State::kHeld;
  received_ns_ = received_ns;
  text_bytes_ = lent_at_ = 0;
  lent_ = {};
  time_ns_ = nullptr;
}

void LaterAnswer::move_to(StreamReplies& replies, uint64_t now_ns) const noexcept {
  BP_DCHECK(state_ == State::kFinished);
  const std::string_view text(text_, text_bytes_);
  if (has_loan()) {
    replies.say(text.substr(0, lent_at_));
    replies.lend(lent_, loan_);
  }
  replies.say(text.substr(lent_at_));
  if (time_ns_ != nullptr) replies.answered_after(now_ns - received_ns_, *time_ns_, kind_);
}

void LaterAnswers::make_spare(StreamSession& session) noexcept {
  is_prepared_ = true;
  for (LaterAnswer& each : all_) {
    each.session_ = &session;
    spare_.push(each);
  }
}

bool LaterAnswers::is_valid() const noexcept {
  if (!is_prepared_) return held_ == nullptr && waiting_count_ == 0 && queue_.is_empty();
  size_t counts[4] = {};
  for (const LaterAnswer& each : all_) ++counts[static_cast<size_t>(each.state_)];
  const auto count_of = [&](LaterAnswer::State state) {
    return counts[static_cast<size_t>(state)];
  };
  const size_t waiting = count_of(LaterAnswer::State::kWaits);
  const auto queued = queue_.count(all_.size(), [this](const LaterAnswer& each) {
    return each.state_ == LaterAnswer::State::kFinished ||
           (is_in_order() && each.state_ == LaterAnswer::State::kWaits);
  });
  const bool is_holding = held_ != nullptr && held_->state_ == LaterAnswer::State::kHeld;
  if (held_ != nullptr && held_->state_ == LaterAnswer::State::kSpare) return false;
  return waiting == waiting_count_ &&
         count_of(LaterAnswer::State::kHeld) == (is_holding ? 1U : 0U) &&
         queued == count_of(LaterAnswer::State::kFinished) + (is_in_order() ? waiting : 0) &&
         spare_.has_just(count_of(LaterAnswer::State::kSpare), [](const LaterAnswer& each) {
           return each.state_ == LaterAnswer::State::kSpare;
         });
}

void LaterAnswers::hold(uint64_t received_ns) noexcept {
  BP_DCHECK(held_ == nullptr);
  held_ = &spare_.pop();
  held_->begin(received_ns);
}

void LaterAnswers::end_hold() noexcept {
  LaterAnswer& held = *std::exchange(held_, nullptr);
  if (held.state_ != LaterAnswer::State::kHeld) return;  // defer()
  if (held.text_bytes_ == 0 && !held.has_loan()) {
    held.state_ = LaterAnswer::State::kSpare;
    return spare_.push(held);
  }
  held.state_ = LaterAnswer::State::kFinished;
  queue_.push(held);
}

LaterAnswer& LaterAnswers::defer(uint64_t received_ns) noexcept {
  BP_REQUIRE(!all_.empty(), "a session without later answers asks for one: its constructor");
  BP_REQUIRE(!has_step_answer() || held_->state_ == LaterAnswer::State::kHeld,
             "a step asks for a second later answer: StreamSession::later");
  if (!has_step_answer()) hold(received_ns);
  LaterAnswer& answer = *held_;
  answer.state_ = LaterAnswer::State::kWaits;
  if (is_in_order()) queue_.push(answer);
  ++waiting_count_;
  if (watch_ != nullptr) watch_->began(answer);
  return answer;
}

void LaterAnswers::finish(LaterAnswer& answer) noexcept {
  BP_REQUIRE(answer.state_ == LaterAnswer::State::kWaits && waiting_count_ > 0,
             "a later answer is finished that does not wait: LaterAnswer::finish, once");
  answer.state_ = LaterAnswer::State::kFinished;
  if (!is_in_order()) queue_.push(answer);
  --waiting_count_;
  if (watch_ != nullptr) watch_->ended(answer);
}

LaterAnswer* LaterAnswers::next() const noexcept {
  LaterAnswer* const first = queue_.first();
  const bool is_finished = first != nullptr && first->state_ == LaterAnswer::State::kFinished;
  return is_finished ? first : nullptr;
}

void LaterAnswers::send_finished(StreamReplies& replies, uint64_t now_ns) noexcept {
  while (!replies.is_sending() && replies.has_room()) {
    const LaterAnswer* const answer = next();
    if (answer == nullptr) return;
    answer->move_to(replies, now_ns);
    pop();
  }
}

void LaterAnswers::pop() noexcept {
  BP_DCHECK(next() != nullptr);
  LaterAnswer& answer = queue_.pop();
  answer.state_ = LaterAnswer::State::kSpare;
  spare_.push(answer);
}

}  // namespace bedplate
