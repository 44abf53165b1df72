// Threads whose stacks are taken at boot: private memory, locked and faulted in, with a guard page.
//
// Stacks are not part of the shared pool: a forked child would share them with its parent. The plan
// counts them all the same, because they are memory taken for good.
#pragma once

#include <cstdint>

#include <pthread.h>

#include "platform/result.h"

namespace bedplate {

inline constexpr uint64_t kThreadStackBytes = uint64_t{1} << 20;

// One thread with a stack of kThreadStackBytes.
// Threads: one at a time. Lifetime: the destructor joins, and frees the stack.
class StackedThread {
 public:
  StackedThread() noexcept = default;
  StackedThread(const StackedThread&) = delete;
  StackedThread& operator=(const StackedThread&) = delete;
  ~StackedThread();

  // Starts `function(context)`. The system's tools show `name` (15 bytes at most). The thread has
  // an alternate signal stack, so that a handler runs even if the stack is full. Requires: called
  // once, even if it fails. Ownership: `context` is the caller's, until the thread has ended.
  // Errors: no memory for the stack, it may not be locked, or no thread.
  Result<void> start(const char* name, void (*function)(void*) noexcept, void* context) noexcept;
  // Waits for the thread to end. Does nothing if none runs.
  void join() noexcept;
  // The same, but abandons a thread that has not ended within `patience_ns`: it runs, on its stack,
  // until the process ends. This object may be destroyed; the objects that `function` uses must
  // outlive the thread. Returns true if the thread has ended.
  bool join_or_leave(uint64_t patience_ns) noexcept;

 private:
  pthread_t thread_ = {};
  void* mapping_ = nullptr;
  bool is_running_ = false;

  static void* enter(void* stack);
};

}  // namespace bedplate
