// Tests of code that ends a process, or must not run in the process of the tests.
//
// Two functions start another process. run_forked() runs a callable in a forked child. The test
// program's pool is shared memory, so parent and child share the pool. The child may read the pool
// but not write it, starts no threads, and runs only the code under test. The child may allocate
// and free: it has a small heap of its own (alloc/child_heap.h), and its frees of the parent's
// blocks do nothing. run_fresh() starts a new instance of the test program and runs one probe in it
// without restrictions, since the instance has its own pool and heap. Both functions return how the
// child ended, and its text on standard error.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <unistd.h>

namespace bedplate::test {

struct Ended {
  int exit_code = -1;  // -1: a signal ended it
  int signal = 0;
  bool timed_out = false;  // it still ran after four minutes, and was killed
  char text[8192] = {};    // the beginning of its standard error

  bool said(std::string_view words) const noexcept {
    return std::string_view(text).find(words) != std::string_view::npos;
  }
};

Ended run_forked(void (*function)(void*), void* context);

// The child exits with 0 when `body` returns.
template <typename Body>
Ended run_forked(Body&& body) {
  using Callable = std::remove_reference_t<Body>;
  return run_forked([](void* context) { (*static_cast<Callable*>(context))(); }, &body);
}

// Runs `steps` in a forked child, which exits with the value that `steps` returns. Returns that
// exit code. For steps with effects that a process cannot undo.
template <typename Steps>
int exit_code_of(Steps steps) {
  return run_forked([&] { _exit(steps()); }).exit_code;
}

// A function that runs in a separate process, and passes when it returns. Probes register
// themselves before main; BP_PROBE defines one.
class Probe {
 public:
  Probe(const char* name, void (*function)()) noexcept;

  const char* const name;
  void (*const function)();
  const Probe* const next;
};

// Starts a new instance of this program with `variables` ("NAME=value") and runs the probe `name`.
// Segment 0 has 16 MiB there, unless a variable says otherwise.
Ended run_fresh(const char* name, const std::vector<std::string>& variables = {});

// Runs the probe `name` and ends the process. For main, when it is called with --probe.
[[noreturn]] void run_probe(const char* name) noexcept;

// For probes: end the process, as failed or as skipped.
[[noreturn]] void probe_failed(const char* file, int line, const char* what) noexcept;
[[noreturn]] void probe_skipped(const char* reason) noexcept;

// Fails the test if the probe failed, and skips the test if the probe was skipped.
void check_probe(const Ended& ended, const char* name, const char* file, size_t line);

// Fails the test unless the child ended in abort(), with `words` on standard error.
void check_died(const Ended& ended, std::string_view words, const char* file, size_t line);

}  // namespace bedplate::test

#define BP_PROBE(name)                                                                  \
  static void bp_probe_##name();                                                        \
  static const ::bedplate::test::Probe bp_probe_object_##name(#name, &bp_probe_##name); \
  static void bp_probe_##name()

// In a probe: the check of a condition.
#define BP_PROBE_CHECK(condition) \
  ((condition) ? (void)0 : ::bedplate::test::probe_failed(__FILE__, __LINE__, #condition))

// In a test: the probe must pass. Further arguments: variables of its environment.
#define BP_CHECK_PROBE(name, ...)                                                         \
  ::bedplate::test::check_probe(::bedplate::test::run_fresh(#name, {__VA_ARGS__}), #name, \
                                __FILE__, __LINE__)

// In a test: the statements must write `words` to standard error and end in abort().
#define BP_CHECK_DIES(words, ...)                                                         \
  ::bedplate::test::check_died(::bedplate::test::run_forked([&] { __VA_ARGS__; }), words, \
                               __FILE__, __LINE__)
