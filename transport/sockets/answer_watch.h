// Counts the answers that the clients of a server wait for, and those of them that the service has
// owed for longer than it planned: perhaps it will never give them.
//
// It closes nothing: a late answer may still come, and then counts no longer. An answer that is
// given at once costs nothing here; one that comes later is linked and unlinked (time_limit.h).
// Threads: the loop's.
#pragma once

#include <cstdint>

#include "platform/counter.h"
#include "platform/thread_owner.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/time_limit.h"

namespace bedplate {

class AnswerWatch {
 public:
  AnswerWatch() noexcept = default;
  AnswerWatch(const AnswerWatch&) = delete;
  AnswerWatch& operator=(const AnswerWatch&) = delete;

  // Before the seal, once. `answer_ns_max`: 0: no answer is late. All else outlives this.
  void create(EventLoop& loop, uint64_t answer_ns_max, Counter& waiting, Counter& late);

  // Somebody waits for the answer from now on; it has come, or nobody needs it any more.
  void began(Limited& answer) noexcept {
    waiting_->set(waiting_->read() + 1);
    limit_.begin(answer);
  }
  void ended(Limited& answer) noexcept {
    BP_REQUIRE_THREAD(loop_->is_own_thread(), "LaterAnswer::finish or StreamSession::resume");
    waiting_->set(waiting_->read() - 1);
    if (!answer.is_limited()) late_->set(late_->read() - 1);
    limit_.end(answer);
  }

 private:
  const EventLoop* loop_ = nullptr;
  Counter* waiting_ = nullptr;
  Counter* late_ = nullptr;
  TimeLimit limit_;
};

}  // namespace bedplate
