// All that runs in the handler is fit for one: no allocation, no lock, files that are open already.
// A step that crashes itself is left behind, and the next one taken.
#include "apps/init/crash.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <string>

#include <sys/prctl.h>
#include <unistd.h>

#include "apps/init/machine.h"
#include "platform/build_id.h"
#include "platform/call_stack.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr const char* kStore = "/sys/fs/pstore";
// Lets a store take the log also when the machine ends in good order.
constexpr const char* kDumpAlways = "/sys/module/printk/parameters/always_kmsg_dump";
constexpr const char* kOldLine = "  | ";
constexpr size_t kLastLineCount = 40;
constexpr int kSignals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP};

struct Prepared {
  MachineEnd action = MachineEnd::kReboot;
  uint32_t delay_s = 0;
  bool dumps = false;
  Watchdog* watchdog = nullptr;
  int kernel_log = -1;
  int dump_always = -1;
  BuildId build;
};
constinit Prepared prepared = {};
constinit std::atomic<pid_t> crashed_thread{0};
constinit int step = 0;
alignas(16) constinit char main_signal_stack[32 << 10] = {};

void log_what(int number, const siginfo_t& info) noexcept {
  char thread[16] = {};
  prctl(PR_GET_NAME, thread, 0, 0, 0);
  char how[64] = "";
  if (info.si_code == SI_USER || info.si_code == SI_TKILL) {
    // An assertion's own abort() comes this way, too.
    if (info.si_pid != getpid()) std::snprintf(how, sizeof how, " from process %d", info.si_pid);
  } else {
    std::snprintf(how, sizeof how, " at address %p", info.si_addr);
  }
  BP_LOG_ERROR("crash: signal %d (%s)%s in thread %s, build %s", number, sigabbrev_np(number), how,
               thread, prepared.build.text);
}

void give_to_kernel(const char* line, size_t line_bytes, void*) noexcept {
  [[maybe_unused]] const ssize_t written = write(prepared.kernel_log, line, line_bytes);
}

void give_record_to_kernel() noexcept {
  if (prepared.kernel_log < 0) return;
  for_each_recent_line(&give_to_kernel, nullptr);
  [[maybe_unused]] const ssize_t written = write(prepared.dump_always, "Y", 1);
}

[[noreturn]] void end_after_delay() noexcept {
  BP_LOG_ERROR("crash: %s in %u s", name_of(prepared.action), prepared.delay_s);
  // The delay may be longer than the watchdog's patience (2 s at least), and the kernel keeps the
  // record only at the end.
  constexpr uint32_t kStepsPerSecond = 2;
  for (uint64_t i = 0; i < uint64_t{prepared.delay_s} * kStepsPerSecond; ++i) {
    prepared.watchdog->keep_alive();
    timespec left = {0, static_cast<long>(kNsPerSecond / kStepsPerSecond)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
  }
  end_machine(prepared.action);
}

// The kernel writes a dump for a fault, and for no signal that its first process sends itself.
[[noreturn]] void fault_for_dump() noexcept {
  BP_LOG_ERROR("crash: dumping, then %s", name_of(prepared.action));
  for (const int number : kSignals) signal(number, SIG_DFL);
  for (;;) __builtin_trap();
}

void on_crash(int number, siginfo_t* info, void*) {
  pid_t nobody = 0;
  const pid_t self = gettid();
  if (!crashed_thread.compare_exchange_strong(nobody, self) && nobody != self) {
    for (;;) pause();  // another one is at it, and ends the machine
  }
  // Each step is counted before it is taken: where it crashes, this begins anew behind it.
  if (step == 0 && ++step != 0) log_what(number, *info);
  if (step == 1 && ++step != 0) log_call_stack(1);
  if (step == 2 && ++step != 0) give_record_to_kernel();
  // A halt is for good, and a dump takes its time. Else it helps where what comes before hangs.
  if (prepared.dumps || prepared.action == MachineEnd::kHalt) prepared.watchdog->stop();
  if (step == 3 && ++step != 0 && prepared.dumps) fault_for_dump();
  end_after_delay();
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
  // Of the kernel's whole log, what is ours; of what still earlier records said, nothing.
  const char* ours = std::strstr(line, "bedplate: ");
  if (ours == nullptr || std::strstr(ours, kOldLine) != nullptr) return;
  BP_LOG_INFO("%s%s", kOldLine, ours + std::strlen("bedplate: "));
  ++shown.our_lines;
}

// Returns whether it could be read.
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
  prepared.action = settings.action;
  prepared.delay_s = settings.delay_s;
  prepared.watchdog = &watchdog;
  prepared.build = build_id();
  prepared.kernel_log = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
  prepared.dump_always = open(kDumpAlways, O_WRONLY | O_CLOEXEC);
  const stack_t signal_stack = {main_signal_stack, 0, sizeof main_signal_stack};
  sigaltstack(&signal_stack, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = &on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (const int number : kSignals) {
    if (sigaction(number, &action, nullptr) != 0) {
      return error_from_errno("catching signal %d", number);
    }
  }
  return {};
}

void dump_crashes() noexcept { prepared.dumps = true; }

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
                  .set_cure("clear the store, or later crashes may find no room in it"));
  }
  return record_count;
}

}  // namespace bedplate
