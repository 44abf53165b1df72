#include "transport/coroutines/coroutine.h"

#include "transport/coroutines/coroutine_session.h"

namespace bedplate {

void CoroutinePromise::unhandled_exception() const noexcept {
  assertion_failed(__FILE__, __LINE__, "an exception left a coroutine");
}

void CoroutinePromise::begin_within(CoroutinePromise& parent) noexcept {
  BP_ASSERT(&frames_ == &parent.frames_);
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
  BP_ASSERT(frames_.loop().is_own_thread() && "a coroutine goes on on the shard of its frames");
  BP_ASSERT(state_ == State::kWaits && "a coroutine goes on that does not wait");
  if (session_ != nullptr) return session_->woken(*this);
  run();
}

}  // namespace bedplate
