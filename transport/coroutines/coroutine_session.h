// CoroutineSession: a session of a StreamServer whose protocol is a coroutine.
//
//     bytes come  -> step(): serve() begins, or goes on from its wait for input
//     serve() waits for its connection            -> the step ends; a later one goes on
//     serve() waits for a file, a shard, a timer  -> the session waits (StreamStep::kWaits)
//     woken(): that has come                      -> the session is resumed; a step goes on
//
// If the peer goes, or the service drains, each wait for the connection ends at once: line() and
// bytes() give nothing, fill() and skip() false, and all that is said is dropped. So serve() goes
// on to its end, after other waits of its own; the connection is kept until then. If serve() ends
// first, the connection closes when all that it has said is sent.
//
// Requests are answered one after the other. Threads: the shard's. Nothing is allocated but frames.
#pragma once

#include <coroutine>
#include <cstdint>
#include <span>
#include <string_view>

#include "transport/coroutines/coroutine.h"
#include "transport/sockets/stream_session_datapath.h"

namespace bedplate {

class CoroutineSession : public StreamSession {
 public:
  // `frames`: the shard's; it needs one for each session's serve(). Ownership: as of StreamSession.
  CoroutineSession(CoroutineFrames& frames, std::span<char> input, std::span<char> output) noexcept
      : StreamSession(input, output), frames_(frames) {}

  // The conversation with one peer, from its first bytes on. If no frame is spare for it, the
  // connection closes (CoroutineFramesOptions::refused).
  virtual Coroutine<> serve() noexcept = 0;

  class InputWait;
  class FillWait;
  class SayWait;
  class LendWait;

 protected:
  ~CoroutineSession() = default;

  // ---- For serve() and the coroutines that it awaits, to co_await ----

  // The next line with its '\n', or the next `count` bytes, as a std::string_view that is valid
  // until the next wait for input. Empty: the peer has gone. A line without a '\n' at its end does
  // not fit into the input buffer. Requires: 0 < count, at most the size of the input buffer.
  InputWait line() noexcept;
  InputWait bytes(uint64_t count) noexcept;
  // Receives the next `count` bytes straight into `memory`, or drops them. False: the peer has gone
  // before. Ownership: `memory` stays until then.
  FillWait fill(char* memory, uint64_t count) noexcept;
  FillWait skip(uint64_t count) noexcept;

  // Appends a copy of `text`, or `number` in decimal, to the replies. Waits only if they have no
  // room: then the socket takes some first. Ownership: `text` stays until then.
  SayWait say(std::string_view text) noexcept;
  SayWait say_number(uint64_t number) noexcept;
  // Appends `text` without a copy: it stays unchanged until released(loan), which is called once.
  LendWait lend(std::string_view text, void* loan) noexcept;

 private:
  friend class CoroutinePromise;
  // Coroutines use the waits above instead.
  using StreamSession::arrived;
  using StreamSession::arrived_line;
  using StreamSession::is_input_full;
  using StreamSession::keep_arrived;
  using StreamSession::later;
  using StreamSession::resume;
  using StreamSession::take;
  using StreamSession::wait;
  using StreamSession::want;

  // kWoken: for the next step. kElse: for nothing of the connection, or not at all: it runs.
  enum class WaitsFor : uint8_t { kInput, kFill, kRoom, kWoken, kElse };

  StreamStep work(uint64_t /*now_ns*/) noexcept final { return step(); }
  void left() noexcept final { go_on_alone(); }
  StreamStep step() noexcept;
  bool may_go_on() noexcept;
  void go_on() noexcept;
  void go_on_alone() noexcept;
  void woken(CoroutinePromise& promise) noexcept;
  void wait_for(WaitsFor what, CoroutinePromise& promise) noexcept;

  void want_input(uint64_t count, CoroutinePromise& promise) noexcept;
  bool has_input() noexcept;
  std::string_view hold_input() noexcept;
  void end_input() noexcept;
  void begin_fill(char* memory, uint64_t count, CoroutinePromise& promise) noexcept;
  bool say_some() noexcept;
  bool try_say(std::string_view text) noexcept {
    to_say_ = text;
    return say_some();
  }
  bool try_lend(std::string_view text, void* loan) noexcept;

  CoroutineFrames& frames_;
  CoroutinePromise* innermost_ = nullptr;  // nullptr: serve() has not begun, or has ended
  WaitsFor waits_for_ = WaitsFor::kElse;
  bool can_lend_ = false;      // in this step
  uint32_t text_room_ = 0;     // in this step
  uint64_t wanted_input_ = 0;  // bytes; 0: a line
  uint64_t ready_input_ = 0;   // bytes that have come for the coroutine
  uint64_t held_input_ = 0;    // bytes that the coroutine reads
  std::string_view to_say_;    // the rest of the text that has found no room
};

// ---- The awaiters -------------------------------------------------------------------------------

class [[nodiscard]] CoroutineSession::InputWait final {
 public:
  InputWait(CoroutineSession& session, uint64_t count) noexcept
      : session_(session), count_(count) {}

  bool await_ready() const noexcept { return session_.has_left(); }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    session_.want_input(count_, handle.promise());
  }
  std::string_view await_resume() const noexcept { return session_.hold_input(); }

 private:
  CoroutineSession& session_;
  const uint64_t count_;  // 0: a line
};

class [[nodiscard]] CoroutineSession::FillWait final {
 public:
  // `memory`: nullptr to drop the bytes.
  FillWait(CoroutineSession& session, char* memory, uint64_t count) noexcept
      : session_(session), memory_(memory), count_(count) {}

  bool await_ready() const noexcept { return session_.has_left(); }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    session_.begin_fill(memory_, count_, handle.promise());
  }
  bool await_resume() const noexcept { return !session_.has_left(); }

 private:
  CoroutineSession& session_;
  char* const memory_;
  const uint64_t count_;
};

class [[nodiscard]] CoroutineSession::SayWait final {
 public:
  SayWait(CoroutineSession& session, std::string_view text) noexcept
      : session_(session), text_(text) {}
  SayWait(CoroutineSession& session, uint64_t number) noexcept;
  SayWait(const SayWait&) = delete;
  SayWait& operator=(const SayWait&) = delete;

  bool await_ready() noexcept { return session_.try_say(text()); }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    session_.wait_for(WaitsFor::kRoom, handle.promise());
  }
  void await_resume() const noexcept {}

 private:
  std::string_view text() const noexcept {
    return digit_count_ > 0 ? std::string_view(digits_, digit_count_) : text_;
  }

  CoroutineSession& session_;
  std::string_view text_;
  uint32_t digit_count_ = 0;
  char digits_[20];
};

class [[nodiscard]] CoroutineSession::LendWait final {
 public:
  LendWait(CoroutineSession& session, std::string_view text, void* loan) noexcept
      : session_(session), text_(text), loan_(loan) {}

  bool await_ready() noexcept { return is_lent_ = session_.try_lend(text_, loan_); }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    session_.wait_for(WaitsFor::kRoom, handle.promise());
  }
  void await_resume() noexcept {
    if (!is_lent_) session_.try_lend(text_, loan_);  // a new step has room
  }

 private:
  CoroutineSession& session_;
  const std::string_view text_;
  void* const loan_;
  bool is_lent_ = false;
};

inline CoroutineSession::InputWait CoroutineSession::line() noexcept { return {*this, 0}; }
inline CoroutineSession::InputWait CoroutineSession::bytes(uint64_t count) noexcept {
  BP_REQUIRE(count > 0, "a coroutine wants no bytes: CoroutineSession::bytes");
  return {*this, count};
}
inline CoroutineSession::FillWait CoroutineSession::fill(char* memory, uint64_t count) noexcept {
  BP_REQUIRE(memory != nullptr, "a coroutine fills no memory: CoroutineSession::fill");
  return {*this, memory, count};
}
inline CoroutineSession::FillWait CoroutineSession::skip(uint64_t count) noexcept {
  return {*this, nullptr, count};
}
inline CoroutineSession::SayWait CoroutineSession::say(std::string_view text) noexcept {
  return {*this, text};
}
inline CoroutineSession::SayWait CoroutineSession::say_number(uint64_t number) noexcept {
  return {*this, number};
}
inline CoroutineSession::LendWait CoroutineSession::lend(std::string_view text,
                                                         void* loan) noexcept {
  return {*this, text, loan};
}

}  // namespace bedplate
