// The thread that may use an object: its shard's thread while the shard runs, any one thread before
// and after.
//
// It is no lock: assertions ask it. The shard's thread holds it while its loop runs
// (EventLoop::run), and functions for that thread alone begin with BP_ASSERT(owner.is_caller()), or
// BP_DCHECK on hot paths. Functions that services call begin with BP_REQUIRE_THREAD, or
// BP_DREQUIRE_THREAD on hot paths.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/assert.h"

namespace bedplate {

class ThreadOwner {
 public:
  // Whether the caller may use the object: the calling thread holds it; or no thread does, and the
  // caller may use the object that this one belongs to. Threads: any. Cost: a relaxed load and a
  // comparison for each of the two.
  bool is_caller() const noexcept {
    const uintptr_t holder = holder_.load(std::memory_order_relaxed);
    if (holder == this_thread()) return true;
    return holder == 0 && (whole_ == nullptr || whole_->is_caller());
  }
  // The object belongs to the one of `whole` from now on: a messenger to its shard's loop. Called
  // before other threads use it. `whole` outlives the use of the object.
  void follow(const ThreadOwner& whole) noexcept { whole_ = &whole; }
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
  const ThreadOwner* whole_ = nullptr;
};

inline constexpr char kForeignThread[] =
    "%s was called on another thread than its shard's: call it there (EventLoop::submit, bp_post)";

}  // namespace bedplate

// The contract of `function` ("Messenger::connect"): only a thread calls it that may use the
// object, as `is_own_thread` says.
#define BP_REQUIRE_THREAD(is_own_thread, function) \
  BP_REQUIRE(is_own_thread, ::bedplate::kForeignThread, function)
#define BP_DREQUIRE_THREAD(is_own_thread, function) \
  BP_DREQUIRE(is_own_thread, ::bedplate::kForeignThread, function)
