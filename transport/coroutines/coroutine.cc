#include "transport/coroutines/coroutine.h"

#include "transport/coroutines/coroutine_session.h"

namespace bedplate {

void CoroutinePromise::unhandled_exception() const noexcept {
  contract_broken("an exception left a coroutine: catch it there");
}

void CoroutinePromise::begin_within(CoroutinePromise& parent) noexcept {
  BP_REQUIRE(&frames_ == &parent.frames_,
             "a coroutine awaits one whose frame is of other CoroutineFrames");
  parent.wait();
  parent_ = &parent;
  session_ = parent.session_;
  frames_.next_ = this;
}

void CoroutinePromise::end() noexcept {
  state_ = State::kEnded;
  frames_.next_ = parent_;
  if (parent_ == nullptr) frames_.ended_ = this;
}

// Another chain may run within resume(), but it leaves next_ and ended_ empty.
bool CoroutinePromise::run() noexcept {
  CoroutineFrames& frames = frames_;
  const CoroutineFrames::Scope scope(frames);
  for (CoroutinePromise* next = this; next != nullptr;) {
    next->state_ = State::kRuns;
    next->handle_.resume();
    next = std::exchange(frames.next_, nullptr);
  }
  CoroutinePromise* const ended = std::exchange(frames.ended_, nullptr);
  if (ended == nullptr) return true;
  ended->handle_.destroy();
  return false;
}

void CoroutinePromise::wake() noexcept {
  BP_REQUIRE_THREAD(frames_.loop().is_own_thread(), "CoroutineWait::end_wait");
  BP_REQUIRE(state_ == State::kWaits,
             "a coroutine is resumed that does not wait: CoroutineWait::end_wait, once");
  if (session_ != nullptr) return session_->woken(*this);
  run();
}

}  // namespace bedplate
