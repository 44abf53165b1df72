// Runs one function on several threads at once, for the few loops of boot that gain from it.
#pragma once

namespace bedplate {

// Calls `function(context)` on `thread_count` threads, including the caller, and returns when all
// calls have returned. At most 64 threads run, and fewer if the system gives fewer: the function
// must share out its work itself (by an atomic counter). With one thread nothing is created or
// allocated. The stacks of the others, 1 MiB each, are unmapped when this returns.
void run_in_parallel(unsigned thread_count, void (*function)(void*) noexcept,
                     void* context) noexcept;

template <typename Worker>
void run_in_parallel(unsigned thread_count, const Worker& worker) noexcept {
  run_in_parallel(
      thread_count, [](void* context) noexcept { (*static_cast<const Worker*>(context))(); },
      const_cast<Worker*>(&worker));
}

}  // namespace bedplate
