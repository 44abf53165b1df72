#include "platform/crash_handler.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>

#include <sys/syscall.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/file.h"
#include "platform/forbidden_calls.h"
#include "platform/text_words.h"

namespace bedplate {
namespace {

constexpr int kCrashSignals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP};
constexpr time_t kStepSecondsMax = 2;

// The handling in one process. A forked child that catches crashes begins anew.
struct Handling {
  std::atomic<pid_t> process{0};  // 0: nothing is caught
  std::span<const CrashStep> steps;
  std::atomic<pid_t> crashed_thread{0};
  std::atomic<size_t> next_step{0};
  Crash crash;
  int timer = -1;  // the kernel's number; -1: not made
};
constinit Handling handling = {};
constinit sigset_t caught_signals = {};
alignas(16) constinit char first_signal_stack[32 << 10] = {};

// Lets a crash of a step be handled, too. Handlers are installed without SA_NODEFER, as
// alloc/thread_heaps.h asks for.
void unblock_caught() noexcept { pthread_sigmask(SIG_UNBLOCK, &caught_signals, nullptr); }

void release_caught() noexcept {
  for (const int number : kCrashSignals) {
    if (sigismember(&caught_signals, number) == 1) signal(number, SIG_DFL);
  }
}

// Sends this thread the signal in `seconds`: it leaves the present step. 0: never.
void limit_step(time_t seconds) noexcept {
  if (handling.timer < 0) {
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = handling.crash.number;
    event._sigev_un._tid = handling.crashed_thread.load(std::memory_order_relaxed);
    // Not timer_create(): it may allocate.
    if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &handling.timer) != 0) return;
  }
  const itimerspec limit = {{0, 0}, {seconds, 0}};
  syscall(SYS_timer_settime, handling.timer, 0, &limit, nullptr);
}

// Whether the interrupted instruction would cause the signal once more.
bool is_fault(const Crash& crash) noexcept {
  switch (crash.number) {
    case SIGBUS: return crash.info.si_code > 0 && crash.info.si_code != BUS_MCEERR_AO;
    case SIGSEGV:
    case SIGILL:
    case SIGFPE: return crash.info.si_code > 0;
    default: return false;
  }
}

// Makes the signal come again, without a handler, as soon as the handlers have returned.
void end_by_signal(const Crash& crash) noexcept {
  release_caught();
  if (getpid() == 1 && !is_fault(crash)) end_by_fault(crash);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, crash.number);
  pthread_sigmask(SIG_BLOCK, &one, nullptr);  // until the return restores the thread's mask
  siginfo_t info = crash.info;
  if (syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), crash.number, &info) == 0) return;
  if (tgkill(getpid(), gettid(), crash.number) != 0) end_by_fault(crash);  // a filter refuses both
}

void on_crash(int number, siginfo_t* info, void* context) {
  const Crash crash = {number, *info, static_cast<const ucontext_t*>(context)};
  if (getpid() != handling.process.load(std::memory_order_relaxed)) return end_by_signal(crash);
  const pid_t self = gettid();
  pid_t nobody = 0;
  if (handling.crashed_thread.compare_exchange_strong(nobody, self)) {
    handling.crash = crash;
  } else if (nobody != self) {
    for (;;) pause();
  }
  unblock_caught();
  // Counts each step before it runs: if it crashes, the handler begins again with the next one.
  for (size_t step; (step = handling.next_step.fetch_add(1)) < handling.steps.size();) {
    limit_step(handling.steps[step].may_last ? 0 : kStepSecondsMax);
    handling.steps[step].run(handling.crash);
  }
  limit_step(0);
  end_by_signal(handling.crash);
}

// If a filter refuses the call, only a stack overflow has no handler.
void give_signal_stack() noexcept {
  stack_t there = {};
  const stack_t ours = {first_signal_stack, 0, sizeof first_signal_stack};
  const bool is_known = sigaltstack(nullptr, &there) == 0;
  if (is_known && (there.ss_flags & SS_DISABLE) != 0) sigaltstack(&ours, nullptr);
}

Result<void> catch_signal(int number) noexcept {
  struct sigaction action = {};
  bool is_set = sigaction(number, nullptr, &action) == 0;
  // The handler's address also lies where a plain handler's would.
  if (is_set && action.sa_handler == SIG_DFL) {
    sigaddset(&caught_signals, number);
    action = {};
    action.sa_sigaction = &on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    is_set = sigaction(number, &action, nullptr) == 0;
  }
  if (is_set) return {};
  Error error = error_from_errno("catching signal %d", number);
  return set_cure_of_forbidden(&error, "rt_sigaction");
}

}  // namespace

Result<void> catch_crashes(std::span<const CrashStep> steps) noexcept {
  BP_ASSERT(!steps.empty());
  if (handling.process.load(std::memory_order_relaxed) != getpid()) {
    handling.crashed_thread.store(0, std::memory_order_relaxed);
    handling.next_step.store(0, std::memory_order_relaxed);
    handling.timer = -1;
  }
  handling.steps = steps;
  prepare_crash_record();
  give_signal_stack();
  handling.process.store(getpid(), std::memory_order_relaxed);
  for (const int number : kCrashSignals) BP_TRY(catch_signal(number));
  return {};
}

void stop_other_threads(const Crash& crash) noexcept {
  const Fd threads(open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  alignas(dirent64) char entries[1024];
  const pid_t self = gettid();
  ssize_t got;
  while ((got = getdents64(threads.number(), entries, sizeof entries)) > 0) {
    for (ssize_t at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      pid_t thread = 0;
      const bool is_thread = parse_number(entry->d_name, &thread);
      if (is_thread && thread != self) tgkill(getpid(), thread, crash.number);
    }
  }
}

void end_by_fault(const Crash&) noexcept {
  release_caught();
  for (;;) __builtin_trap();
}

}  // namespace bedplate
