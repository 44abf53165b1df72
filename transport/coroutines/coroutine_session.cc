#include "transport/coroutines/coroutine_session.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "transport/loop/event_loop.h"

namespace bedplate {

CoroutineSession::SayWait::SayWait(CoroutineSession& session, uint64_t number) noexcept
    : session_(session) {
  const char* const end = std::to_chars(digits_, std::end(digits_), number).ptr;
  digit_count_ = static_cast<uint32_t>(end - digits_);
}

// ---- Steps --------------------------------------------------------------------------------------

StreamStep CoroutineSession::step() noexcept {
  text_room_ = kStepTextBytes;
  can_lend_ = true;
  if (may_go_on()) go_on();
  text_room_ = 0;
  can_lend_ = false;
  if (innermost_ == nullptr) {
    end();
    return StreamStep::kTaken;
  }
  if (waits_for_ == WaitsFor::kElse) return StreamStep::kWaits;
  if (waits_for_ != WaitsFor::kInput || has_input()) return StreamStep::kTaken;
  if (wanted_input_ > 0) want(wanted_input_);
  return StreamStep::kStarved;
}

bool CoroutineSession::may_go_on() noexcept {
  if (waits_for_ == WaitsFor::kInput) return has_input();
  return waits_for_ != WaitsFor::kRoom || say_some();
}

void CoroutineSession::go_on() noexcept {
  waits_for_ = WaitsFor::kElse;  // unless it waits for something of the connection
  if (innermost_ == nullptr) {
    const CoroutineFrames::Scope scope(frames_);
    Coroutine<> served = serve();
    if (!served.is_there()) return;
    innermost_ = served.release();
    innermost_->session_ = this;
  }
  if (innermost_->run()) return;
  innermost_ = nullptr;
  end_input();
}

// The peer has gone: waits for the connection end now.
void CoroutineSession::go_on_alone() noexcept {
  if (innermost_ == nullptr || waits_for_ == WaitsFor::kElse) return;
  go_on();
  if (innermost_ != nullptr) wait();
}

void CoroutineSession::woken(CoroutinePromise& promise) noexcept {
  innermost_ = &promise;
  if (!has_left()) {
    waits_for_ = WaitsFor::kWoken;
    return resume(frames_.loop().now_ns());
  }
  go_on();
  if (innermost_ == nullptr) resume(frames_.loop().now_ns());
}

void CoroutineSession::wait_for(WaitsFor what, CoroutinePromise& promise) noexcept {
  BP_REQUIRE(promise.session() == this,
             "a coroutine waits for the peer of a session that did not begin it: "
             "CoroutineSession::serve");
  promise.wait();
  innermost_ = &promise;
  waits_for_ = what;
}

// ---- Input --------------------------------------------------------------------------------------

void CoroutineSession::want_input(uint64_t count, CoroutinePromise& promise) noexcept {
  wait_for(WaitsFor::kInput, promise);
  end_input();
  wanted_input_ = count;
}

bool CoroutineSession::has_input() noexcept {
  if (ready_input_ > 0) return true;
  if (wanted_input_ == 0) {
    ready_input_ = is_input_full() ? arrived().size() : 0;  // a line that does not fit
    if (const size_t line_bytes = arrived_line().size(); line_bytes > 0) ready_input_ = line_bytes;
  } else if (arrived().size() >= wanted_input_) {
    ready_input_ = wanted_input_;
  } else {
    BP_REQUIRE(!is_input_full(),
               "a coroutine wants more bytes than its session's input buffer holds: "
               "CoroutineSession::bytes");
  }
  return ready_input_ > 0;
}

std::string_view CoroutineSession::hold_input() noexcept {
  if (has_left()) return {};
  held_input_ = ready_input_;
  keep_arrived(true);
  return arrived().substr(0, held_input_);
}

void CoroutineSession::end_input() noexcept {
  take(std::exchange(held_input_, 0));
  ready_input_ = 0;
  keep_arrived(false);
}

void CoroutineSession::begin_fill(char* memory, uint64_t count,
                                  CoroutinePromise& promise) noexcept {
  wait_for(WaitsFor::kFill, promise);
  end_input();
  memory == nullptr ? StreamSession::skip(count) : StreamSession::fill(memory, count);
}

// ---- Replies ------------------------------------------------------------------------------------

// Says as much of to_say_ as this step has room for. Returns whether nothing is left of it.
bool CoroutineSession::say_some() noexcept {
  if (has_left()) to_say_ = {};
  const std::string_view part = to_say_.substr(0, text_room_);
  if (!part.empty()) StreamSession::say(part);
  text_room_ -= static_cast<uint32_t>(part.size());
  to_say_.remove_prefix(part.size());
  return to_say_.empty();
}

bool CoroutineSession::try_lend(std::string_view text, void* loan) noexcept {
  if (has_left()) {
    released(loan);
    return true;
  }
  if (!can_lend_) return false;
  can_lend_ = false;
  StreamSession::lend(text, loan);
  return true;
}

}  // namespace bedplate
