// Threads whose stacks are taken at boot: private memory, locked and faulted in, with a guard page.
//
// Stacks are not part of the shared pool: a forked child would share them with its parent. They
// are counted in the plan all the same, because they are memory that is taken for good.
#pragma once

#include <cstdint>

#include <pthread.h>

#include "platform/result.h"

namespace bedplate {

inline constexpr uint64_t kThreadStackBytes = uint64_t{1} << 20;

// One thread with a stack of kThreadStackBytes, and its join.
// Threads: one at a time. Lifetime: the destructor joins, and frees the stack.
class StackedThread {
 public:
  StackedThread() noexcept = default;
  StackedThread(const StackedThread&) = delete;
  StackedThread& operator=(const StackedThread&) = delete;
  ~StackedThread();

  // Starts `function(context)`. The name is shown by the system's tools (15 bytes at most).
  // `function` has a signal stack of its own, so that a handler runs even if the stack is full.
  // Requires: called once, even if it fails. Ownership: `context` is the caller's, until the thread
  // has ended. Errors: no memory for the stack, it may not be locked, or no thread.
  Result<void> start(const char* name, void (*function)(void*) noexcept, void* context) noexcept;
  // Waits for the thread to end. Does nothing if none runs.
  void join() noexcept;
  // The same, but a thread that has not ended within `patience_ns` is left to the end of the
  // process, with its stack; this object may be destroyed. The things that `function` uses must
  // outlive the thread. Returns true if the thread has ended.
  bool join_or_leave(uint64_t patience_ns) noexcept;

 private:
  pthread_t thread_ = {};
  void* mapping_ = nullptr;
  bool is_running_ = false;

  static void* enter(void* stack);
};

}  // namespace bedplate
