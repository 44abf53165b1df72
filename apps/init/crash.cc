// The steps' code is async-signal-safe: it allocates nothing, and uses files that are already open.
#include "apps/init/crash.h"

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <string>

#include <unistd.h>

#include "apps/boot/appliance_crash.h"
#include "apps/init/machine.h"
#include "platform/assert.h"
#include "platform/crash_handler.h"
#include "platform/crash_record.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/product.h"
#include "platform/recent_lines.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr const char* kStore = "/sys/fs/pstore";
// Makes pstore keep the log also when the machine ends in good order.
constexpr const char* kDumpAlways = "/sys/module/printk/parameters/always_kmsg_dump";
constexpr const char* kStoreName = "/sys/module/pstore/parameters/backend";
constexpr const char* kOldLine = "  | ";
constexpr size_t kLastLineCount = 40;

struct Prepared {
  MachineEnd action = MachineEnd::kReboot;
  uint32_t delay_s = 0;
  bool dumps = false;
  Watchdog* watchdog = nullptr;
  int kernel_log = -1;
  int dump_always = -1;
};
constinit Prepared prepared = {};
constinit uint64_t given_count = 0;  // log lines already given to the kernel

void let_user_reset(const Crash&) noexcept { give_up_ctrl_alt_del(); }

void give_to_kernel(const char* line, size_t line_bytes, void*) noexcept {
  [[maybe_unused]] const ssize_t written = write(prepared.kernel_log, line, line_bytes);
}

// Gives the kernel the log lines that it does not have yet.
void give_log_to_kernel(const Crash&) noexcept {
  given_count = for_each_recent_line(given_count, &give_to_kernel, nullptr);
  [[maybe_unused]] const ssize_t written = write(prepared.dump_always, "Y", 1);
}

// Stops the watchdog for a halt, which is permanent, and for a dump, which takes long. Otherwise
// the watchdog stays on, in case a later step hangs.
void choose_watchdog(const Crash&) noexcept {
  if (prepared.dumps || prepared.action == MachineEnd::kHalt) prepared.watchdog->stop();
}

void wait_for_reader(const Crash&) noexcept {
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
void fault_for_dump(const Crash& crash) noexcept {
  if (!prepared.dumps) return;
  BP_LOG_ERROR("crash: dumping, then %s", to_text(prepared.action));
  end_by_fault(crash);
}

void end_now(const Crash&) noexcept { end_machine(prepared.action); }

// The kernel has the record before record_calls(), which takes locks.
constexpr CrashStep kSteps[] = {
    {&let_user_reset},        {&stop_other_threads}, {&record_cause},    {&give_log_to_kernel},
    {&record_calls},          {&give_log_to_kernel}, {&choose_watchdog}, {&fault_for_dump, true},
    {&wait_for_reader, true}, {&end_now, true}};

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
  // Selects the program's lines from the kernel's log, except those that repeat an earlier record.
  const std::string prefix = std::string(product().name) + ": ";
  const char* ours = std::strstr(line, prefix.c_str());
  if (ours == nullptr || std::strstr(ours, kOldLine) != nullptr) return;
  BP_LOG_INFO("%s%s", kOldLine, ours + prefix.size());
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

Result<void> end_machine_at_crash(const CrashSettings& settings, Watchdog& watchdog) noexcept {
  BP_ASSERT(prepared.watchdog == nullptr);  // called once
  prepared.action = settings.action;
  prepared.delay_s = settings.delay_s;
  prepared.watchdog = &watchdog;
  prepared.kernel_log = open_for_crash("/dev/kmsg", O_WRONLY);
  prepared.dump_always = open_for_crash(kDumpAlways, O_WRONLY);
  name_crash_places(&write_crash_place);
  return catch_crashes(kSteps);
}

void dump_crashes() noexcept {
  BP_ASSERT(prepared.watchdog != nullptr);  // end_machine_at_crash() was called
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
