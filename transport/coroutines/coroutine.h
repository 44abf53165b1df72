// Coroutine: a function that waits without a thread, on a shard. coroutines.h tells how to use it.
//
//     a chain:   serve() awaits store() awaits write_to()    the innermost waits
//     callback:  CoroutineWait::end_wait() -> CoroutinePromise::wake()
//     run():     resumes the innermost; what it begins runs next; what it ends gives way to its
//                parent; until one waits, or the first has ended, and its frame is given back
//
// So no coroutine runs on the stack of another one of its chain, however often one awaits another.
// Threads: the shard's. Nothing is allocated but frames (coroutine_frames.h).
#pragma once

#include <coroutine>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "platform/assert.h"
#include "transport/coroutines/coroutine_frames.h"
#include "transport/loop/event_loop.h"

namespace bedplate {

class CoroutineSession;

// ---- Coroutines ---------------------------------------------------------------------------------

// The state of a coroutine. For awaiters, which derive from CoroutineWait below.
class CoroutinePromise {
 public:
  static void* operator new(size_t bytes) noexcept { return CoroutineFrames::take(bytes); }
  static void operator delete(void* frame) noexcept { CoroutineFrames::give_back(frame); }

  CoroutinePromise(const CoroutinePromise&) = delete;
  CoroutinePromise& operator=(const CoroutinePromise&) = delete;

  std::suspend_always initial_suspend() const noexcept { return {}; }
  [[noreturn]] void unhandled_exception() const noexcept;

  CoroutineFrames& frames() const noexcept { return frames_; }
  // The session whose serve() began this chain; nullptr: none.
  CoroutineSession* session() const noexcept { return session_; }

  // The coroutine suspends: wake() will end that.
  void wait() noexcept {
    BP_DCHECK(state_ == State::kRuns);
    state_ = State::kWaits;
  }
  // Resumes the coroutine, now or when its session can. The caller touches it no more.
  void wake() noexcept;

 protected:
  explicit CoroutinePromise(std::coroutine_handle<> handle) noexcept : handle_(handle) {}
  ~CoroutinePromise() = default;

  struct End {
    bool await_ready() const noexcept { return false; }
    template <typename Promise>
    void await_suspend(std::coroutine_handle<Promise> handle) const noexcept {
      handle.promise().end();
    }
    void await_resume() const noexcept {}
  };

 private:
  template <typename T>
  friend class Coroutine;
  friend class CoroutineSession;
  template <typename Make>
  friend bool start_coroutine(CoroutineFrames& frames, Make&& make) noexcept;
  enum class State : uint8_t { kNew, kRuns, kWaits, kEnded };

  void begin_within(CoroutinePromise& parent) noexcept;
  void end() noexcept;
  // Runs the chain whose innermost coroutine this is. Returns false if the chain has ended; its
  // frames are then given back.
  bool run() noexcept;

  const std::coroutine_handle<> handle_;
  CoroutineFrames& frames_ = CoroutineFrames::current();
  CoroutineSession* session_ = nullptr;
  CoroutinePromise* parent_ = nullptr;  // waits for the end of this one; nullptr: nobody does
  State state_ = State::kNew;
};

template <typename T>
class CoroutineResult : public CoroutinePromise {
 public:
  template <typename Value>
  void return_value(Value&& value) noexcept {
    value_.emplace(std::forward<Value>(value));
  }
  T take() noexcept { return std::move(*value_); }

 protected:
  using CoroutinePromise::CoroutinePromise;
  ~CoroutineResult() = default;

 private:
  std::optional<T> value_;
};
template <>
class CoroutineResult<void> : public CoroutinePromise {
 public:
  void return_void() const noexcept {}
  void take() const noexcept {}

 protected:
  using CoroutinePromise::CoroutinePromise;
  ~CoroutineResult() = default;
};

// A function with co_await or co_return returns this. It begins when it is awaited:
// `const int sum = co_await add(1, 2);`
template <typename T = void>
class [[nodiscard]] Coroutine {
 public:
  struct promise_type final : CoroutineResult<T> {
    promise_type() noexcept
        : CoroutineResult<T>(std::coroutine_handle<promise_type>::from_promise(*this)) {}
    Coroutine get_return_object() noexcept { return Coroutine(this); }
    static Coroutine get_return_object_on_allocation_failure() noexcept {
      return Coroutine(nullptr);
    }
    CoroutinePromise::End final_suspend() const noexcept { return {}; }
  };

  Coroutine(Coroutine&& other) noexcept : promise_(std::exchange(other.promise_, nullptr)) {}
  Coroutine& operator=(Coroutine&&) = delete;
  ~Coroutine() {
    if (promise_ == nullptr) return;
    BP_REQUIRE(promise_->state_ == State::kNew || promise_->state_ == State::kEnded,
               "a coroutine is destroyed before its end: its Coroutine stays until then");
    promise_->handle_.destroy();
  }

  // False: no frame was spare, so it cannot be awaited. The plan prevents it.
  bool is_there() const noexcept { return promise_ != nullptr; }

  // For co_await, in another coroutine.
  bool await_ready() const noexcept {
    BP_REQUIRE(is_there(), "more coroutines are awaited than have frames: FrameClass::count");
    BP_REQUIRE(promise_->state_ == State::kNew, "a coroutine is awaited twice: call it again");
    return false;
  }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> parent) noexcept {
    promise_->begin_within(parent.promise());
  }
  T await_resume() noexcept { return promise_->take(); }

 private:
  friend class CoroutineSession;
  template <typename Make>
  friend bool start_coroutine(CoroutineFrames& frames, Make&& make) noexcept;
  using State = CoroutinePromise::State;

  explicit Coroutine(promise_type* promise) noexcept : promise_(promise) {}
  // The chain gives the frame back.
  promise_type* release() noexcept { return std::exchange(promise_, nullptr); }

  promise_type* promise_;
};

// Starts the Coroutine<> that `make()` makes, in a frame of `frames`; nobody waits for its end.
// Returns false if no frame was spare: nothing has begun. Threads: the shard's.
template <typename Make>
[[nodiscard]] bool start_coroutine(CoroutineFrames& frames, Make&& make) noexcept {
  const CoroutineFrames::Scope scope(frames);
  Coroutine<> made = make();
  if (!made.is_there()) return false;
  made.release()->run();
  return true;
}

// A compiler that sees both ends of a coroutine's life may leave out its frame; here it does not.
template <typename Make>
[[gnu::noinline]] auto made_by(Make& make) noexcept {
  return make();
}

// Makes the coroutine that `make()` returns, and destroys it unrun: for create(), so that a frame
// that fits no class is refused at boot. `name`: for the error. Errors (kSystem): it fits none.
template <typename Make>
Result<void> check_coroutine(CoroutineFrames& frames, const char* name, Make&& make) {
  const CoroutineFrames::Scope scope(frames);
  return frames.judge(name, made_by(make).is_there());
}

// ---- Waits --------------------------------------------------------------------------------------

// The base of an awaiter that begins an operation and is called back. It lies in the frame of the
// coroutine that awaits it, and stays there until it has ended.
class CoroutineWait {
 public:
  CoroutineWait(const CoroutineWait&) = delete;
  CoroutineWait& operator=(const CoroutineWait&) = delete;

 protected:
  CoroutineWait() noexcept = default;
  ~CoroutineWait() = default;

  template <typename Promise>
  CoroutinePromise& begin_wait(std::coroutine_handle<Promise> handle) noexcept {
    static_assert(std::is_base_of_v<CoroutinePromise, Promise>,
                  "only a bedplate::Coroutine can wait for this");
    waiter_ = &handle.promise();
    waiter_->wait();
    return *waiter_;
  }
  // Called last: the coroutine may end within it, and its frame with it.
  void end_wait() noexcept { std::exchange(waiter_, nullptr)->wake(); }
  bool is_awaited() const noexcept { return waiter_ != nullptr; }

 private:
  CoroutinePromise* waiter_ = nullptr;
};

// Ends when some callback calls set(): for everything that has no wait of its own. Data travel
// beside it. It may be set before it is awaited, and used again afterwards. Ownership: the
// caller's; it stays while it is awaited. Threads: those of `loop`.
class CoroutineEvent : private CoroutineWait {
 public:
  explicit CoroutineEvent(EventLoop& loop) noexcept : loop_(loop) {}

  // Resumes the coroutine that awaits it, before set() returns; else the next await does not wait.
  // Requires: it is not set.
  void set() noexcept {
    BP_REQUIRE_THREAD(loop_.is_own_thread(), "CoroutineEvent::set");
    BP_REQUIRE(!is_set_, "an event is set twice: CoroutineEvent::set, once for each co_await");
    is_set_ = true;
    if (is_awaited()) end_wait();
  }

  // For co_await.
  bool await_ready() const noexcept {
    BP_REQUIRE(!is_awaited(), "two coroutines await one event: each needs a CoroutineEvent");
    return is_set_;
  }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    begin_wait(handle);
  }
  void await_resume() noexcept { is_set_ = false; }

 private:
  EventLoop& loop_;
  bool is_set_ = false;
};

}  // namespace bedplate
