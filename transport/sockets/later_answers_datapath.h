// The answers of a StreamSession that come later: of requests that wait for a file, another shard,
// a message or a timer.
//
//     work():       take(line); start the operation, with later() as its context
//     completion:   answer.say(text); answer.finish(now_ns)
//
// Threads: the session's.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "platform/assert.h"
#include "platform/free_list.h"
#include "platform/histogram.h"
#include "platform/tail_queue.h"
#include "transport/loop/time_limit.h"
#include "transport/sockets/answer_watch.h"

namespace bedplate {

class StreamReplies;
class StreamSession;

class LaterAnswer : private Limited {
 public:
  static constexpr uint32_t kTextBytes = 2 * 1024;

  LaterAnswer() noexcept = default;
  LaterAnswer(const LaterAnswer&) = delete;
  LaterAnswer& operator=(const LaterAnswer&) = delete;

  // Whether the peer is still there. Otherwise the answer is dropped, but it is finished as well.
  bool is_wanted() const noexcept;

  // Appends a copy of `text`. Requires: at most kTextBytes in all.
  void say(std::string_view text) noexcept {
    BP_REQUIRE(is_open(), "%s", kEnded);
    BP_REQUIRE(text.size() <= kTextBytes - text_bytes_,
               "a later answer says more than %u bytes: LaterAnswer::say", kTextBytes);
    std::memcpy(text_ + text_bytes_, text.data(), text.size());
    text_bytes_ += static_cast<uint32_t>(text.size());
  }
  void say_number(uint64_t number) noexcept;
  // Appends `text` without a copy, as StreamSession::lend does. Requires: once.
  void lend(std::string_view text, void* loan) noexcept {
    BP_REQUIRE(is_open(), "%s", kEnded);
    BP_REQUIRE(!has_loan() && text.data() != nullptr,
               "a later answer lends twice, or nothing: LaterAnswer::lend");
    lent_ = text;
    loan_ = loan;
    lent_at_ = text_bytes_;
  }
  // As StreamSession::answered. The time ends when the answer joins the replies of a send.
  void answered(Histogram& time_ns, uint8_t kind = 0) noexcept {
    BP_REQUIRE(is_open(), "%s", kEnded);
    time_ns_ = &time_ns;
    kind_ = kind;
  }
  // The answer is complete, and belongs to the session again: its completion calls this once, also
  // if the peer has gone. `now_ns`: the loop's time.
  void finish(uint64_t now_ns) noexcept;

 private:
  friend class LaterAnswers;
  friend class StreamSession;
  static constexpr char kEnded[] =
      "a later answer is filled after it was finished: LaterAnswer::finish";
  // kHeld: by a step that has not ended.
  enum class State : uint8_t { kSpare, kHeld, kWaits, kFinished };

  bool is_open() const noexcept { return state_ == State::kHeld || state_ == State::kWaits; }
  bool has_loan() const noexcept { return lent_.data() != nullptr; }
  void begin(uint64_t received_ns) noexcept;
  void move_to(StreamReplies& replies, uint64_t now_ns) const noexcept;

  StreamSession* session_ = nullptr;
  LaterAnswer* next_ = nullptr;
  State state_ = State::kSpare;
  uint8_t kind_ = 0;
  uint32_t text_bytes_ = 0;
  uint32_t lent_at_ = 0;  // the bytes of text before the loan
  std::string_view lent_;
  void* loan_ = nullptr;
  Histogram* time_ns_ = nullptr;
  uint64_t received_ns_ = 0;  // the receipt of its request
  char text_[kTextBytes];
};

// The order in which a session sends its answers.
enum class AnswerOrder : uint8_t {
  kOfRequests,
  kAny,  // as they are finished: the protocol's replies name their requests
};

// All LaterAnswers of a session. In the order of requests, a step behind a waiting answer gets one
// for what it says, so that its answer does not overtake.
//
// Invariant, checked by is_valid(): each is spare and in spare_, or held by the step, or waits, or
// is finished. queue_ has the finished ones and, in the order of requests, the waiting ones. The
// step's answer is held, or, after defer(), waits or is finished.
class LaterAnswers {
 public:
  // Ownership: `all` outlives it. It may be constructed later than this: prepare() is the first
  // function that touches it.
  LaterAnswers(std::span<LaterAnswer> all, AnswerOrder order) noexcept
      : all_(all), order_(order), is_prepared_(all.empty()) {}
  LaterAnswers(const LaterAnswers&) = delete;

  // Makes all of them spare answers of `session`, which outlives this. Called before the first
  // step; further calls do nothing.
  void prepare(StreamSession& session) noexcept {
    if (BP_UNLIKELY(!is_prepared_)) make_spare(session);
  }

  // From now on `watch` sees its waiting answers, too; several sessions may share it.
  void watch_by(AnswerWatch* watch) noexcept { watch_ = watch; }
  uint32_t waiting_count() const noexcept { return waiting_count_; }

  // Without any, the functions around a step have nothing to do.
  bool has_any() const noexcept { return !all_.empty(); }

  // ---- Around a step ----

  bool may_step() const noexcept { return all_.empty() || !spare_.is_empty(); }
  void begin_step(uint64_t received_ns) noexcept {
    if (BP_UNLIKELY(is_in_order() && !queue_.is_empty())) hold(received_ns);
  }
  // Whether the step has an answer: of_step(). Else the replies take what it says.
  bool has_step_answer() const noexcept { return held_ != nullptr; }
  // The answer that takes what the step says. Requires: later() was not called in this step.
  LaterAnswer& of_step() const noexcept {
    BP_REQUIRE(held_->state_ == LaterAnswer::State::kHeld,
               "a step says something after later(), which others may overtake: say it before, or "
               "by LaterAnswer::say");
    return *held_;
  }
  // Whether a reply that goes straight to the replies would overtake a waiting answer.
  bool would_be_overtaken() const noexcept { return is_in_order() && !queue_.is_empty(); }
  // Makes the step's answer a waiting one. Requires: once in a step; there are such answers.
  LaterAnswer& defer(uint64_t received_ns) noexcept;
  void end_step() noexcept {
    if (BP_UNLIKELY(held_ != nullptr)) end_hold();
  }

  // ---- Their end ----

  // Requires: `answer` waits.
  void finish(LaterAnswer& answer) noexcept;
  // Moves finished answers into `replies`, as far as order and space allow.
  void send_finished(StreamReplies& replies, uint64_t now_ns) noexcept;
  // The finished answer that is sent next; nullptr: none can be sent.
  LaterAnswer* next() const noexcept;
  // next() was sent, or is dropped.
  void pop() noexcept;

  // ---- The wait of the session itself, which the watch sees as one answer more ----

  bool is_session_waiting() const noexcept { return is_session_waiting_; }
  void begin_session_wait() noexcept {
    is_session_waiting_ = true;
    if (watch_ != nullptr) watch_->began(session_wait_);
  }
  void end_session_wait() noexcept {
    is_session_waiting_ = false;
    if (watch_ != nullptr) watch_->ended(session_wait_);
  }

  bool is_valid() const noexcept;

 private:
  bool is_in_order() const noexcept { return order_ == AnswerOrder::kOfRequests; }
  void make_spare(StreamSession& session) noexcept;
  void hold(uint64_t received_ns) noexcept;
  void end_hold() noexcept;

  const std::span<LaterAnswer> all_;
  const AnswerOrder order_;
  bool is_prepared_;
  FreeList<&LaterAnswer::next_> spare_;
  TailQueue<&LaterAnswer::next_> queue_;
  LaterAnswer* held_ = nullptr;  // the step's; after defer() until the end of the step, too
  uint32_t waiting_count_ = 0;
  AnswerWatch* watch_ = nullptr;
  bool is_session_waiting_ = false;
  Limited session_wait_;
};

}  // namespace bedplate
