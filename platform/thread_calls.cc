#include "platform/thread_calls.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>

#include <sys/prctl.h>
#include <unistd.h>

#include "platform/call_stack.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constexpr const char* kThreads = "/proc/self/task";

// The thread that is asked, until it begins to answer or is given up; then 0.
constinit std::atomic<pid_t> asked_thread{0};
constinit std::atomic<pid_t> answered_thread{0};

int own_signal() noexcept { return SIGRTMAX - 3; }

void on_asked(int) {
  const int errno_before = errno;
  pid_t self = gettid();
  // One that was given up finds nothing to answer.
  if (asked_thread.compare_exchange_strong(self, 0)) {
    char name[16] = {};
    prctl(PR_GET_NAME, name, 0, 0, 0);
    BP_LOG_ERROR("thread %s (%d):", name, static_cast<int>(self));
    log_call_stack(1);
    answered_thread.store(self, std::memory_order_release);
  }
  errno = errno_before;
}

Result<void> take_signal() noexcept {
  struct sigaction before = {};
  sigaction(own_signal(), nullptr, &before);
  if (before.sa_handler == &on_asked) return {};
  if (before.sa_handler != SIG_DFL) {
    Error error;
    error.set_doing("asking threads where they are");
    error.set_answer("the signal %d has a handler that is not ours", own_signal());
    return error.set_cure("leave it to Bedplate, or attach gdb");
  }
  struct sigaction action = {};
  action.sa_handler = &on_asked;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(own_signal(), &action, nullptr);
  return {};
}

// Returns whether it answered.
bool ask(pid_t thread, uint64_t patience_ns) noexcept {
  answered_thread.store(0, std::memory_order_relaxed);
  asked_thread.store(thread, std::memory_order_release);
  if (tgkill(getpid(), thread, own_signal()) != 0) {
    asked_thread.store(0, std::memory_order_relaxed);
    return true;  // it has ended
  }
  const uint64_t deadline_ns = monotonic_ns() + patience_ns;
  while (answered_thread.load(std::memory_order_acquire) != thread) {
    pid_t nobody_else = thread;
    // What has begun to answer is waited for: its lines are its own.
    if (monotonic_ns() >= deadline_ns && asked_thread.compare_exchange_strong(nobody_else, 0)) {
      BP_LOG_ERROR("thread %d: silent", static_cast<int>(thread));
      return false;
    }
    const timespec pause = {0, 100'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

}  // namespace

Result<ThreadCallsLogged> log_thread_calls(uint64_t patience_ns) noexcept {
  if (auto taken = take_signal(); !taken.ok()) return taken.error();
  const Fd threads(open(kThreads, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!threads.is_open()) {
    return error_from_errno("listing threads in %s", kThreads).set_cure("mount /proc");
  }
  ThreadCallsLogged logged;
  alignas(dirent64) char entries[1024];
  ssize_t got;
  while ((got = getdents64(threads.number(), entries, sizeof entries)) > 0) {
    for (ssize_t at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      const pid_t thread = std::atoi(entry->d_name);
      if (thread <= 0) continue;
      ++logged.threads;
      if (!ask(thread, patience_ns)) ++logged.silent;
    }
  }
  return logged;
}

}  // namespace bedplate
