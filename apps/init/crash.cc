// The handler's code is async-signal-safe: it allocates nothing, uses files that are already open,
// and takes no lock except the loader's, for the call stack; the kernel has the record before that.
// If a step itself crashes, the next step follows.
#include "apps/init/crash.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <iterator>
#include <memory>
#include <string>

#include <sys/prctl.h>
#include <unistd.h>

#include "apps/init/machine.h"
#include "platform/assert.h"
#include "platform/build_id.h"
#include "platform/call_stack.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/recent_lines.h"
#include "platform/text_words.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr const char* kStore = "/sys/fs/pstore";
// Makes pstore keep the log also when the machine ends in good order.
constexpr const char* kDumpAlways = "/sys/module/printk/parameters/always_kmsg_dump";
constexpr const char* kThreads = "/proc/self/task";
constexpr const char* kStoreName = "/sys/module/pstore/parameters/backend";
constexpr const char* kOldLine = "  | ";
constexpr const char* kDefect = "this is a defect, or a filter refuses system calls";
constexpr size_t kLastLineCount = 40;
constexpr int kSignals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP};

struct Prepared {
  MachineEnd action = MachineEnd::kReboot;
  uint32_t delay_s = 0;
  bool dumps = false;
  Watchdog* watchdog = nullptr;
  int threads = -1;
  int kernel_log = -1;
  int dump_always = -1;
  BuildId build;
};
constinit Prepared prepared = {};
constinit std::atomic<pid_t> crashed_thread{0};
constinit std::atomic<size_t> next_step{0};
constinit uint64_t given_count = 0;  // log lines already given to the kernel
alignas(16) constinit char main_signal_stack[32 << 10] = {};

// Stops all other threads, so that none works on broken state: each enters on_crash, and waits
// there.
void stop_other_threads(int, const siginfo_t&) noexcept {
  alignas(dirent64) char entries[1024];
  const pid_t self = gettid();
  ssize_t got;
  while ((got = getdents64(prepared.threads, entries, sizeof entries)) > 0) {
    for (ssize_t at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      pid_t thread = 0;
      const bool is_thread = parse_number(entry->d_name, &thread);
      if (is_thread && thread != self) tgkill(getpid(), thread, SIGABRT);
      at += entry->d_reclen;
    }
  }
}

void log_what(int number, const siginfo_t& info) noexcept {
  char thread[16] = {};
  prctl(PR_GET_NAME, thread, 0, 0, 0);
  char how[64] = "";
  if (info.si_code == SI_USER || info.si_code == SI_TKILL) {
    // An assertion's own abort() arrives here, too.
    if (info.si_pid != getpid()) std::snprintf(how, sizeof how, " from process %d", info.si_pid);
  } else if (info.si_code != SI_KERNEL) {  // SI_KERNEL: no address, as for a non-canonical one
    std::snprintf(how, sizeof how, " at address %p", info.si_addr);
  }
  BP_LOG_ERROR("crash: signal %d (%s)%s in thread %s, build %s", number, sigabbrev_np(number), how,
               thread, prepared.build.text);
}

void give_to_kernel(const char* line, size_t line_bytes, void*) noexcept {
  [[maybe_unused]] const ssize_t written = write(prepared.kernel_log, line, line_bytes);
}

void log_calls(int, const siginfo_t&) noexcept { log_call_stack(1); }

// Gives the kernel the log lines that it does not have yet.
void give_log_to_kernel(int, const siginfo_t&) noexcept {
  given_count = for_each_recent_line(given_count, &give_to_kernel, nullptr);
  [[maybe_unused]] const ssize_t written = write(prepared.dump_always, "Y", 1);
}

// Stops the watchdog for a halt, which is permanent, and for a dump, which takes long. Otherwise
// the watchdog stays on, in case a later step hangs.
void choose_watchdog(int, const siginfo_t&) noexcept {
  if (prepared.dumps || prepared.action == MachineEnd::kHalt) prepared.watchdog->stop();
}

void wait_for_reader(int, const siginfo_t&) noexcept {
  BP_LOG_ERROR("crash: %s in %u s", to_text(prepared.action), prepared.delay_s);
  // The delay may be longer than the watchdog's timeout (2 s at least), and the kernel keeps the
  // record only at the end; so this feeds the watchdog.
  constexpr uint32_t kStepsPerSecond = 2;
  for (uint64_t i = 0; i < uint64_t{prepared.delay_s} * kStepsPerSecond; ++i) {
    prepared.watchdog->keep_alive();
    const timespec pause = {0, static_cast<long>(kNsPerSecond / kStepsPerSecond)};
    nanosleep(&pause, nullptr);
  }
}

// The kernel dumps its first process for a fault, but not for a signal that the process sends
// itself.
void fault_for_dump(int, const siginfo_t&) noexcept {
  if (!prepared.dumps) return;
  BP_LOG_ERROR("crash: dumping, then %s", to_text(prepared.action));
  for (const int number : kSignals) signal(number, SIG_DFL);
  for (;;) __builtin_trap();
}

using Step = void (*)(int number, const siginfo_t& info) noexcept;
constexpr Step kSteps[] = {&stop_other_threads, &log_what,           &give_log_to_kernel,
                           &log_calls,          &give_log_to_kernel, &choose_watchdog,
                           &fault_for_dump,     &wait_for_reader};

void on_crash(int number, siginfo_t* info, void*) {
  pid_t nobody = 0;
  const pid_t self = gettid();
  if (!crashed_thread.compare_exchange_strong(nobody, self) && nobody != self) {
    for (;;) pause();  // another thread handles a crash, and ends the machine
  }
  give_up_ctrl_alt_del();
  // Counts each step before it runs: if it crashes, the handler begins again with the next one.
  for (size_t step; (step = next_step.fetch_add(1)) < std::size(kSteps);) {
    kSteps[step](number, *info);
  }
  end_machine(prepared.action);
}

// Opens a file for the handler, permanently. If that fails, the rest of the record is still
// written.
int open_for_crash(const char* path, int flags) noexcept {
  const int file = open(path, flags | O_CLOEXEC);
  if (file < 0) {
    log_error(error_from_errno("opening %s for crash records", path)
                  .set_cure("boot a kernel that has it; otherwise records go to the console only"));
  }
  return file;
}

// ---- Records of earlier crashes ----

struct Shown {
  uint32_t our_lines = 0;
  std::deque<std::string> last_lines;
};

void show_line(const char* line, void* context) {
  auto& shown = *static_cast<Shown*>(context);
  shown.last_lines.emplace_back(line);
  if (shown.last_lines.size() > kLastLineCount) shown.last_lines.pop_front();
  // Selects Bedplate's lines from the kernel's log, except those that repeat an earlier record.
  const char* ours = std::strstr(line, "bedplate: ");
  if (ours == nullptr || std::strstr(ours, kOldLine) != nullptr) return;
  BP_LOG_INFO("%s%s", kOldLine, ours + std::strlen("bedplate: "));
  ++shown.our_lines;
}

// Returns true if the record could be read.
bool show_record(const char* path) {
  Shown shown;
  if (auto read = read_lines(path, &show_line, &shown); !read.ok()) {
    log_error(read.error());
    return false;
  }
  if (shown.our_lines > 0) return true;
  for (const std::string& line : shown.last_lines) BP_LOG_INFO("%s%s", kOldLine, line.c_str());
  return true;
}

}  // namespace

Result<void> catch_crashes(const CrashSettings& settings, Watchdog& watchdog) noexcept {
  BP_ASSERT(prepared.watchdog == nullptr);  // called once
  prepared.action = settings.action;
  prepared.delay_s = settings.delay_s;
  prepared.watchdog = &watchdog;
  prepared.build = build_id();
  prepared.threads = open_for_crash(kThreads, O_RDONLY | O_DIRECTORY);
  prepared.kernel_log = open_for_crash("/dev/kmsg", O_WRONLY);
  prepared.dump_always = open_for_crash(kDumpAlways, O_WRONLY);
  prepare_call_stack();  // the handler may not allocate
  const stack_t signal_stack = {main_signal_stack, 0, sizeof main_signal_stack};
  if (sigaltstack(&signal_stack, nullptr) != 0) {
    return error_from_errno("setting the stack of signal handlers").set_cure("%s", kDefect);
  }
  struct sigaction action = {};
  action.sa_sigaction = &on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (const int number : kSignals) {
    if (sigaction(number, &action, nullptr) != 0) {
      return error_from_errno("catching signal %d", number).set_cure("%s", kDefect);
    }
  }
  return {};
}

void dump_crashes() noexcept {
  BP_ASSERT(prepared.watchdog != nullptr);  // catch_crashes() was called
  prepared.dumps = true;
}

void say_where_records_go() noexcept {
  char store[64] = "";
  const auto read = read_text_file(kStoreName, store, sizeof store);
  store[std::strcspn(store, "\n")] = '\0';
  // The kernel prints a missing name as "(null)".
  if (!read.ok() || store[0] == '(' || store[0] == '\0') {
    BP_LOG_INFO("crash records: on the console only; pstore has no store (name its driver in "
                "[crash] drivers)");
  } else {
    BP_LOG_INFO("crash records: on the console, and kept by %s", store);
  }
}

int show_old_records() noexcept {
  const std::unique_ptr<DIR, int (*)(DIR*)> store(opendir(kStore), &closedir);
  int record_count = 0;
  while (const dirent* record = store ? readdir(store.get()) : nullptr) {
    if (record->d_name[0] == '.') continue;
    const std::string path = std::string(kStore) + "/" + record->d_name;
    BP_LOG_INFO("record of an earlier crash, %s:", record->d_name);
    ++record_count;
    if (!show_record(path.c_str()) || unlink(path.c_str()) == 0) continue;
    log_error(error_from_errno("removing the record %s", path.c_str())
                  .set_cure("clear the store, or later records may not fit into it"));
  }
  return record_count;
}

}  // namespace bedplate
