// The thread that may use an object: its shard's thread while the shard runs, any one thread before
// and after.
//
// It is no lock: assertions ask it. The shard's thread holds it while its loop runs
// (EventLoop::run), and functions for that thread alone begin with BP_ASSERT(owner.is_caller()), or
// BP_DCHECK on hot paths.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/assert.h"

namespace bedplate {

class ThreadOwner {
 public:
  // Whether the caller may use the object: no thread holds it, or the calling thread does. Threads:
  // any. Cost: a relaxed load and a comparison.
  bool is_caller() const noexcept {
    const uintptr_t holder = holder_.load(std::memory_order_relaxed);
    return holder == 0 || holder == this_thread();
  }
  bool is_held() const noexcept { return holder_.load(std::memory_order_relaxed) != 0; }
  // Whether the calling thread holds it. is_held() && is_caller() is no substitute: another thread
  // may release the object between the two loads.
  bool is_held_by_caller() const noexcept {
    return holder_.load(std::memory_order_relaxed) == this_thread();
  }

  // The calling thread holds the object during the life of a Hold. Holds nest.
  class Hold {
   public:
    explicit Hold(ThreadOwner& owner) noexcept : owner_(owner) {
      before_ = owner.holder_.exchange(this_thread(), std::memory_order_relaxed);
      BP_ASSERT(before_ == 0 || before_ == this_thread());
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() {
      BP_DCHECK(owner_.is_held_by_caller());  // on the thread that began it
      owner_.holder_.store(before_, std::memory_order_relaxed);
    }

   private:
    ThreadOwner& owner_;
    uintptr_t before_;
  };

  // A Hold in debug builds, nothing in others. For hot code.
#if BP_DEBUG
  using DebugHold = Hold;
#else
  struct DebugHold {
    explicit DebugHold(ThreadOwner&) noexcept {}
  };
#endif

 private:
  // A number that no two threads have at the same time.
  static uintptr_t this_thread() noexcept {
    static thread_local char mark;
    return reinterpret_cast<uintptr_t>(&mark);
  }

  std::atomic<uintptr_t> holder_{0};  // 0: no thread
};

}  // namespace bedplate
