#include "platform/every_thread.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/file.h"

namespace bedplate {
namespace {

constexpr uint64_t kIoWorkerFlag = 0x10;  // PF_IO_WORKER
constexpr uint64_t kPatienceNs = 10 * kNsPerSecond;
constexpr long kPollNs = 20 * static_cast<long>(kNsPerUs);

struct Call {
  void (*function)(void*) noexcept;
  void* context;
};
Call call;
std::atomic<pid_t> called{0};  // the thread that is to call next; 0: it has

int call_signal() noexcept { return SIGRTMIN + 5; }

void handle(int) {
  const int saved = errno;
  pid_t self = gettid();
  if (called.load(std::memory_order_acquire) == self) {  // pairs with call_on
    call.function(call.context);
    called.store(0, std::memory_order_release);  // pairs with call_on
  }
  errno = saved;
}

// proc_pid_stat(5): the ninth field, seven behind the name in parentheses.
bool is_kernels_own(const char* id) noexcept {
  char text[512];
  const std::string path = std::string("/proc/self/task/") + id + "/stat";
  if (!read_text_file(path.c_str(), text, sizeof text).ok()) return false;
  const char* field = std::strrchr(text, ')');
  for (int i = 0; field != nullptr && i < 7; ++i) field = std::strchr(field + 1, ' ');
  return field != nullptr && (std::strtoull(field, nullptr, 10) & kIoWorkerFlag) != 0;
}

Result<void> call_on(pid_t thread) noexcept {
  called.store(thread, std::memory_order_release);  // pairs with handle
  const pid_t process = getpid();
  if (syscall(SYS_tgkill, process, thread, call_signal()) != 0) return {};  // it has ended
  const uint64_t deadline_ns = monotonic_ns() + kPatienceNs;
  while (called.load(std::memory_order_acquire) != 0) {  // pairs with handle
    if (syscall(SYS_tgkill, process, thread, 0) != 0) return {};
    if (monotonic_ns() >= deadline_ns) {
      Error error;
      error.set_doing("calling a function on thread %d", thread);
      error.set_answer("it has not taken signal %d", call_signal());
      return error.set_cure("let the code that starts this thread not block all signals");
    }
    const timespec pause = {0, kPollNs};
    nanosleep(&pause, nullptr);
  }
  return {};
}

Result<void> call_on_others(std::vector<pid_t>* done) {
  for (bool is_new = true; is_new;) {
    is_new = false;
    auto threads = list_threads();
    BP_TRY(threads);
    for (const pid_t thread : threads.value()) {
      if (std::find(done->begin(), done->end(), thread) != done->end()) continue;
      BP_TRY(call_on(thread));
      done->push_back(thread);
      is_new = true;
    }
  }
  return {};
}

}  // namespace

Result<std::vector<pid_t>> list_threads() {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir("/proc/self/task"), &closedir);
  if (!entries) {
    return error_from_errno("listing this process's threads").set_cure("mount -t proc proc /proc");
  }
  std::vector<pid_t> threads;
  while (const dirent* entry = readdir(entries.get())) {
    if (entry->d_name[0] == '.' || is_kernels_own(entry->d_name)) continue;
    threads.push_back(static_cast<pid_t>(std::atoi(entry->d_name)));
  }
  return threads;
}

Result<void> on_every_thread(void (*function)(void*) noexcept, void* context) {
  call = {function, context};
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = &handle;
  action.sa_flags = SA_RESTART;
  sigaction(call_signal(), &action, &before);
  std::vector<pid_t> done = {gettid()};
  // On failure the handler stays: the signal may still be on its way.
  BP_TRY(call_on_others(&done));
  sigaction(call_signal(), &before, nullptr);
  function(context);
  return {};
}

}  // namespace bedplate
