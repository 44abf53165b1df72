// The waits of coroutines: for a timer, another shard, a file, the queue of a peer. Each function
// returns an awaiter, which begins its operation when it is awaited, in the coroutine's frame:
// `const int64_t result = co_await read_from(file, memory, 0);`
//
// Threads: the shard's. Nothing is allocated. The operations are those of their headers, with their
// rules; their memory stays in place until the wait has ended.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "transport/coroutines/coroutine.h"
#include "transport/files/files.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/shard_question_datapath.h"
#include "transport/messages/messenger.h"

namespace bedplate {

// ---- A timer ----

class [[nodiscard]] TimerWait final : private CoroutineWait {
 public:
  explicit TimerWait(uint64_t wait_ns) noexcept : wait_ns_(wait_ns) {}

  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    EventLoop& loop = begin_wait(handle).frames().loop();
    timer_.context = this;
    timer_.expired = [](void* self) noexcept { static_cast<TimerWait*>(self)->end_wait(); };
    loop.timers().arm(timer_, loop.now_ns() + wait_ns_);
  }
  void await_resume() const noexcept {}

 private:
  uint64_t wait_ns_;
  Timer timer_;
};

// Goes on when `wait_ns` have passed since the loop's time. Requires: the timer is planned.
inline TimerWait after(uint64_t wait_ns) noexcept { return TimerWait(wait_ns); }

// ---- Another shard ----

// A question that a coroutine asks: for those that are answered later, or carry more than a
// function's result. Ownership and the rest: shard_question_datapath.h.
class AwaitedQuestion : public ShardQuestion, private CoroutineWait {
 public:
  using ShardQuestion::ShardQuestion;

 private:
  friend class QuestionWait;

  template <typename Promise>
  void begin(std::coroutine_handle<Promise> handle, ShardAsker& asker, EventLoop& to) noexcept {
    begin_wait(handle);
    asker.ask(to, *this,
              [](ShardQuestion& self) noexcept { static_cast<AwaitedQuestion&>(self).end_wait(); });
  }
};

class [[nodiscard]] QuestionWait final {
 public:
  QuestionWait(ShardAsker& asker, EventLoop& to, AwaitedQuestion& question) noexcept
      : asker_(asker), to_(to), question_(question) {}

  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    question_.begin(handle, asker_, to_);
  }
  void await_resume() const noexcept {}

 private:
  ShardAsker& asker_;
  EventLoop& to_;
  AwaitedQuestion& question_;
};

// Goes on when `question` is answered. Requires: as ShardAsker::ask.
inline QuestionWait ask(ShardAsker& asker, EventLoop& to, AwaitedQuestion& question) noexcept {
  return {asker, to, question};
}

template <typename Function>
class [[nodiscard]] CallWait final : private AwaitedQuestion {
  using Result = std::invoke_result_t<Function&>;
  static_assert(std::is_trivially_copyable_v<Function>, "capture references and plain values");

 public:
  CallWait(ShardAsker& asker, EventLoop& to, Function function) noexcept
      : AwaitedQuestion(&CallWait::call), asker_(asker), to_(to), function_(function) {}

  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    QuestionWait(asker_, to_, *this).await_suspend(handle);
  }
  Result await_resume() noexcept {
    if constexpr (!std::is_void_v<Result>) return std::move(*result_);
  }

 private:
  static void call(ShardQuestion& question) noexcept {
    auto& self = static_cast<CallWait&>(static_cast<AwaitedQuestion&>(question));
    if constexpr (std::is_void_v<Result>) {
      self.function_();
    } else {
      self.result_.emplace(self.function_());
    }
    self.answer();
  }

  ShardAsker& asker_;
  EventLoop& to_;
  Function function_;
  std::optional<std::conditional_t<std::is_void_v<Result>, char, Result>> result_;
};

// Calls `function()` on the shard of the loop `to`, and goes on with its result. Its captures are
// read there while this coroutine waits. Requires: as ShardAsker::ask.
template <typename Function>
requires std::is_invocable_v<Function&> CallWait<Function> ask(ShardAsker& asker, EventLoop& to,
                                                               Function function)
noexcept { return {asker, to, function}; }

// ---- A file ----

class [[nodiscard]] FileWait final : private CoroutineWait {
 public:
  FileWait(File& file, const FileOperation& operation) noexcept
      : file_(file), operation_(operation) {}

  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    begin_wait(handle);
    operation_.context = this;
    operation_.completed = [](void* self, int64_t result) noexcept {
      static_cast<FileWait*>(self)->result_ = result;
      static_cast<FileWait*>(self)->end_wait();
    };
    file_.begin(operation_);
  }
  int64_t await_resume() const noexcept { return result_; }

 private:
  File& file_;
  FileOperation operation_;
  int64_t result_ = 0;
};

// Goes on when the operation has ended, with its result: see FileOperation. Its callback and its
// context are set here. Ownership: the memory that it names stays until then.
inline FileWait carry_out(File& file, const FileOperation& operation) noexcept {
  return {file, operation};
}
inline FileWait read_from(File& file, std::span<std::byte> into, uint64_t offset) noexcept {
  FileOperation operation;
  operation.memory = into.data();
  operation.bytes = into.size();
  operation.offset = offset;
  return {file, operation};
}
// is_durable: on the medium when it ends.
inline FileWait write_to(File& file, std::span<const std::byte> from, uint64_t offset,
                         bool is_durable = false) noexcept {
  FileOperation operation;
  operation.action = FileAction::kWrite;
  operation.is_durable = is_durable;
  operation.memory = const_cast<std::byte*>(from.data());
  operation.bytes = from.size();
  operation.offset = offset;
  return {file, operation};
}

// ---- A peer's queue ----

class [[nodiscard]] SendWait final : private CoroutineWait, private RoomCall {
 public:
  SendWait(Messenger& messenger, Endpoint& peer, AmId id,
           std::span<const std::byte> payload) noexcept
      : messenger_(messenger), peer_(peer), id_(id), payload_(payload) {}

  bool await_ready() noexcept {
    status_ = peer_.am_send(id_, payload_);
    return status_ != SendStatus::kAgain;
  }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    begin_wait(handle);
    call = [](RoomCall& self) noexcept {
      auto& its = static_cast<SendWait&>(self);
      its.await_ready() ? its.end_wait() : its.messenger_.notify_room(its.peer_, its);
    };
    messenger_.notify_room(peer_, *this);
  }
  SendStatus await_resume() const noexcept { return status_; }

 private:
  Messenger& messenger_;
  Endpoint& peer_;
  AmId id_;
  std::span<const std::byte> payload_;
  SendStatus status_ = SendStatus::kAgain;
};

// Sends a copy of `payload` (Endpoint::am_send), and goes on when the peer's queue has taken it, or
// cannot: kDone, kGone or kTooLong. `payload` stays until then.
inline SendWait send_message(Messenger& messenger, Endpoint& to, AmId id,
                             std::span<const std::byte> payload) noexcept {
  return {messenger, to, id, payload};
}

// The end of a loan, put, get, atomic or flush.
struct MessageEnd {
  SendStatus status = SendStatus::kAgain;  // kDone, kPending (it began; see `outcome`), or why not
  Outcome outcome = Outcome::kNotDone;
  bool is_done() const noexcept { return outcome == Outcome::kDone; }
};

template <typename Start>
class [[nodiscard]] MessageWait final : private CoroutineWait,
                                        private RoomCall,
                                        private Completion {
  static_assert(std::is_trivially_copyable_v<Start>, "capture references and plain values");

 public:
  MessageWait(Messenger& messenger, Endpoint& peer, Start start) noexcept
      : messenger_(messenger), peer_(peer), start_(start) {}

  bool await_ready() noexcept {
    Completion::call = [](Completion& self, Outcome outcome) noexcept {
      static_cast<MessageWait&>(self).end_.outcome = outcome;
      static_cast<MessageWait&>(self).end_wait();
    };
    end_.status = start_(static_cast<Completion*>(this));
    if (end_.status == SendStatus::kDone) end_.outcome = Outcome::kDone;
    return end_.status != SendStatus::kAgain && end_.status != SendStatus::kPending;
  }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    begin_wait(handle);
    RoomCall::call = [](RoomCall& self) noexcept {
      auto& its = static_cast<MessageWait&>(self);
      its.await_ready() ? its.end_wait() : its.wait_for_room();
    };
    wait_for_room();
  }
  MessageEnd await_resume() const noexcept { return end_; }

 private:
  void wait_for_room() noexcept {
    if (end_.status == SendStatus::kAgain) messenger_.notify_room(peer_, *this);
  }

  Messenger& messenger_;
  Endpoint& peer_;
  Start start_;
  MessageEnd end_;
};

// Begins an operation of `to` when its queue has room, and goes on at the operation's end:
// `co_await complete(messenger, to, [&](Completion* done) { return to.get(into, from, done); })`.
template <typename Start>
MessageWait<Start> complete(Messenger& messenger, Endpoint& to, Start start) noexcept {
  return {messenger, to, start};
}

}  // namespace bedplate
