// Threads whose stacks are taken at boot: private memory, locked and faulted in, with a guard page.
//
// Stacks are not part of the shared pool: a forked child would share them with its parent. The plan
// of memory still counts them, because they are memory taken for good.
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

  // Starts `function(context)`. The system's tools show the first 15 bytes of `name`. The thread
  // has an alternate signal stack, so that a handler runs even if the stack is full. Call it only
  // once, even if it fails. Ownership: `context` stays the caller's, and outlives the thread.
  // Errors (kSystem): no memory for the stack, it cannot be locked, or no thread.
  Result<void> start(const char* name, void (*function)(void*) noexcept, void* context) noexcept;
  // Waits for the thread to end. Does nothing if none runs. Requires, here and below: the caller is
  // another thread.
  void join() noexcept;
  // The same, but abandons a thread that has not ended within `patience_ns`: it runs, on its stack,
  // until the process ends. This object may be destroyed; the objects that `function` uses must
  // outlive the thread. Returns true if the thread has ended, or none ran.
  bool join_or_leave(uint64_t patience_ns) noexcept;

 private:
  pthread_t thread_ = {};
  void* mapping_ = nullptr;
  bool is_running_ = false;

  static void* enter(void* stack);
};

}  // namespace bedplate
