// Runs one function on several threads at once, for the few loops of boot that are worth it.
#pragma once

namespace bedplate {

// Calls `function(context)` on `thread_count` threads, the calling one among them, and returns
// when all have returned. If the system gives fewer threads, fewer run: the function must share
// out its work by itself (an atomic counter). With one thread nothing is created or allocated; the
// stacks of the others, 1 MiB each, are gone when this returns.
void run_in_parallel(unsigned thread_count, void (*function)(void*) noexcept,
                     void* context) noexcept;

template <typename Worker>
void run_in_parallel(unsigned thread_count, const Worker& worker) noexcept {
  run_in_parallel(
      thread_count, [](void* context) noexcept { (*static_cast<const Worker*>(context))(); },
      const_cast<Worker*>(&worker));
}

}  // namespace bedplate
