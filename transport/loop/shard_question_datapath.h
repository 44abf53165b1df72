// Questions from one shard to another, each with an answer.
//
//     the asking shard                              the asked shard
//     asker.ask(loop, question, answered)    -->    question.asked(question)
//     answered(question)                     <--    question.answer(), at once or later
//
// A question is its own memory, so nothing can be full. A service derives from it, for what it asks
// and for what comes back, and keeps it in planned memory: in a connection, in a table. One shard
// touches it at a time: the asked one from asked() until answer(), else the asking one. A shard may
// ask itself; this takes a round of its loop.
//
// While a service drains its loops run on, so questions are answered as ever: it is drained when
// ShardAsker::in_flight() is 0. When the shards stop, a question that is in flight stays so, and
// none of its functions is called any more.
//
// Neither shard allocates or locks. Cost: two calls of a loop (loop_call_datapath.h).
#pragma once

#include <cstdint>

#include "alloc/heap_owner.h"
#include "platform/assert.h"
#include "platform/counter.h"
#include "transport/loop/event_loop.h"

namespace bedplate {

class ShardAsker;

// Ownership: the caller's, at the same address while it is in flight.
class ShardQuestion {
 public:
  ShardQuestion() noexcept = default;
  explicit ShardQuestion(void (*its_asked)(ShardQuestion& self) noexcept) noexcept
      : asked(its_asked) {}
  ShardQuestion(const ShardQuestion&) = delete;
  ShardQuestion& operator=(const ShardQuestion&) = delete;

  // Called on the asked shard, charged to the owner that asks. It neither blocks nor polls. It
  // calls answer(), or starts an operation whose completion does.
  void (*asked)(ShardQuestion& self) noexcept = nullptr;

  // Gives the question back to the asking shard. Requires: called once for each call of asked(), on
  // the asked shard.
  inline void answer() noexcept;

  // Whether it was asked, and is not answered yet. Threads: the asking shard's.
  bool is_in_flight() const noexcept { return state_ != State::kIdle; }

 private:
  friend class ShardAsker;
  // kSent and kAnswered: it is on its way to the other shard.
  enum class State : uint8_t { kIdle, kSent, kAsked, kAnswered };

  void submit(EventLoop& loop, void (*function)(void* self) noexcept) noexcept {
    call_.function = function;
    call_.context = this;
    loop.submit(call_);
  }

  LoopCall call_;
  void (*answered_)(ShardQuestion& self) noexcept = nullptr;
  ShardAsker* asker_ = nullptr;
  EventLoop* to_ = nullptr;
  HeapOwner owner_ = {};  // the heap owner that asked
  State state_ = State::kIdle;
};

// The questions that one service asks from one shard (ServicePlan::questions). Their number is
// bounded, and with it the number of calls that they bring to a loop in one round.
//
// Threads: the shard's, except for in_flight(). Invariant: at most as many questions are in flight
// as are planned. (ask)
class ShardAsker {
 public:
  ShardAsker() noexcept = default;
  ShardAsker(const ShardAsker&) = delete;
  ShardAsker& operator=(const ShardAsker&) = delete;

  // Requires: called once. Ownership: `loop`, the shard's, outlives the asker.
  void create(EventLoop& loop, uint32_t question_count_max) noexcept {
    BP_ASSERT(loop_ == nullptr);
    loop_ = &loop;
    question_count_max_ = question_count_max;
  }

  // Asks the shard of the loop `to`, which may be this one. `answered` is called once, on this
  // shard, charged to the owner that asks, and never from within ask(). From then on the question
  // may be asked again, or freed. Requires: `question` is not in flight, and has a function; fewer
  // questions are in flight than are planned.
  void ask(EventLoop& to, ShardQuestion& question,
           void (*answered)(ShardQuestion& self) noexcept) noexcept {
    BP_REQUIRE_THREAD(loop_->is_own_thread(), "ShardAsker::ask");
    BP_REQUIRE(question.asked != nullptr && answered != nullptr,
               "a question without a function is asked: ShardQuestion::asked, ShardAsker::ask");
    BP_REQUIRE(!question.is_in_flight(),
               "a question is asked that is not answered yet: ShardAsker::ask (bp_ask)");
    BP_REQUIRE(in_flight() < question_count_max_,
               "more questions are in flight than a service plans on this shard, %u: "
               "ServicePlan::questions (bp_plan_questions)",
               question_count_max_);
    in_flight_.add(1);
    question.answered_ = answered;
    question.asker_ = this;
    question.to_ = &to;
    question.owner_ = current_heap_owner();
    question.state_ = ShardQuestion::State::kSent;
    question.submit(to, [](void* self) noexcept {
      auto& arrived = *static_cast<ShardQuestion*>(self);
      BP_DCHECK(arrived.state_ == ShardQuestion::State::kSent && arrived.to_->is_own_thread());
      arrived.state_ = ShardQuestion::State::kAsked;
      arrived.asked(arrived);
    });
  }

  // How many questions are in flight. Threads: any.
  uint64_t in_flight() const noexcept { return in_flight_.read(); }

 private:
  friend class ShardQuestion;

  void take_back(ShardQuestion& question) noexcept {
    BP_DCHECK(loop_->is_own_thread() && question.state_ == ShardQuestion::State::kAnswered);
    BP_ASSERT(in_flight() > 0);
    in_flight_.set(in_flight() - 1);
    question.state_ = ShardQuestion::State::kIdle;
    follow_heap_owner(question.owner_);
    question.answered_(question);
  }

  EventLoop* loop_ = nullptr;
  uint32_t question_count_max_ = 0;
  Counter in_flight_;
};

inline void ShardQuestion::answer() noexcept {
  BP_REQUIRE(state_ == State::kAsked,
             "a question is answered twice, or before it has arrived: ShardQuestion::answer "
             "(bp_answer)");
  BP_REQUIRE_THREAD(to_->is_own_thread(), "ShardQuestion::answer");
  state_ = State::kAnswered;
  submit(*asker_->loop_, [](void* self) noexcept {
    auto& answered = *static_cast<ShardQuestion*>(self);
    answered.asker_->take_back(answered);
  });
}

}  // namespace bedplate
