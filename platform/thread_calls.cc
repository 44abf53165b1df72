#include "platform/thread_calls.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>

#include <sys/prctl.h>
#include <unistd.h>

#include "platform/call_stack.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/text_words.h"

namespace bedplate {
namespace {

constexpr const char* kThreads = "/proc/self/task";
constexpr uint64_t kAnswersPatience = 20;  // a thread that has begun to answer gets this multiple

// The thread that is asked; 0 once it begins to answer, or is given up.
constinit std::atomic<pid_t> asked_thread{0};
constinit std::atomic<pid_t> answered_thread{0};

int own_signal() noexcept { return SIGRTMAX - 3; }

void on_asked(int) {
  const int errno_before = errno;
  pid_t self = gettid();
  // A thread that was given up finds 0 here and logs nothing.
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
    return error_while("asking threads for their call stacks")
        .set_answer("signal %d has a handler that is not Bedplate's", own_signal())
        .set_cure("leave it to Bedplate, or attach gdb");
  }
  struct sigaction action = {};
  action.sa_handler = &on_asked;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(own_signal(), &action, nullptr);
  return {};
}

// Whether the thread is a worker of io_uring: it belongs to the kernel, runs no code of ours and
// blocks all signals (PF_IO_WORKER in include/linux/sched.h; the ninth field of proc(5)'s stat).
bool is_kernels(pid_t thread) noexcept {
  constexpr uint64_t kIoWorker = 0x10;
  char path[64];
  char text[512];
  std::snprintf(path, sizeof path, "%s/%d/stat", kThreads, static_cast<int>(thread));
  if (!read_text_file(path, text, sizeof text).ok()) return false;
  const char* behind_name = std::strrchr(text, ')');
  if (behind_name == nullptr) return false;
  std::string_view fields(behind_name + 1);
  for (int field = 3; field < 9; ++field) take_word(&fields);
  return (take_number<uint64_t>(&fields, 0) & kIoWorker) != 0;
}

enum class Answer { kGiven, kSilent, kNoThread };

Answer ask(pid_t thread, uint64_t patience_ns) noexcept {
  answered_thread.store(0, std::memory_order_relaxed);
  asked_thread.store(thread, std::memory_order_release);
  if (tgkill(getpid(), thread, own_signal()) != 0) {
    const int number = errno;
    asked_thread.store(0, std::memory_order_relaxed);
    if (number == ESRCH) return Answer::kNoThread;
    BP_LOG_ERROR("thread %d: not asked: %s", static_cast<int>(thread), std::strerror(number));
    return Answer::kSilent;
  }
  const uint64_t begin_ns = monotonic_ns();
  while (answered_thread.load(std::memory_order_acquire) != thread) {
    const uint64_t waited_ns = monotonic_ns() - begin_ns;
    pid_t nobody_else = thread;
    // The thread was ending, like a thread that was just joined: until the kernel removes it, it is
    // listed and accepts signals, but runs no handler.
    if (tgkill(getpid(), thread, 0) != 0 && asked_thread.compare_exchange_strong(nobody_else, 0)) {
      return Answer::kNoThread;
    }
    nobody_else = thread;
    if (waited_ns >= patience_ns && asked_thread.compare_exchange_strong(nobody_else, 0)) {
      BP_LOG_ERROR("thread %d: no answer", static_cast<int>(thread));
      return Answer::kSilent;
    }
    // A thread that has begun to answer gets longer: it is writing its lines.
    if (waited_ns >= kAnswersPatience * patience_ns) {
      BP_LOG_ERROR("thread %d: began to answer, but has not finished", static_cast<int>(thread));
      return Answer::kSilent;
    }
    const timespec pause = {0, 100'000};
    nanosleep(&pause, nullptr);
  }
  return Answer::kGiven;
}

}  // namespace

Result<ThreadCallsLogged> log_thread_calls(uint64_t patience_ns) noexcept {
  if (auto taken = take_signal(); !taken.ok()) return taken.error();
  const Fd threads(open(kThreads, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!threads.is_open()) {
    return error_from_errno("listing threads in %s", kThreads).set_cure("mount /proc");
  }
  prepare_call_stack();
  ThreadCallsLogged logged;
  alignas(dirent64) char entries[1024];
  ssize_t got;
  while ((got = getdents64(threads.number(), entries, sizeof entries)) > 0) {
    for (ssize_t at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      pid_t thread = 0;
      if (!parse_number(entry->d_name, &thread)) continue;
      if (is_kernels(thread)) continue;
      const Answer answer = ask(thread, patience_ns);
      if (answer != Answer::kNoThread) ++logged.threads;
      if (answer == Answer::kSilent) ++logged.silent;
    }
  }
  return logged;
}

}  // namespace bedplate
