#include "apps/init/machine.h"

#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <ctime>

#include <fcntl.h>

#include <linux/capability.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <unistd.h>

#include "apps/boot/preflight.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/progress.h"
#include "platform/standard_streams.h"
#include "platform/units.h"

namespace bedplate {

namespace {

constexpr uint64_t kDeviceWaitNs = 10 * kNsPerSecond;
constexpr long kDevicePollNs = 5 * static_cast<long>(kNsPerMs);

Result<void> reserve(const HugepageNeed& need) {
  BP_TRY_ASSIGN(const auto missing, missing_hugepages(need));
  const HugepageCounts counts = hugepage_counts(need.page, need.node);
  if (!counts.supported) return {};
  BP_LOG_INFO("hugepages of %s on %s: %" PRIu64 " needed, %" PRIu64 " free, reserving %" PRIu64,
              format_bytes(page_bytes(need.page)).text, format_node(need.node).text, need.count,
              counts.available_count, missing);
  if (missing == 0) return {};
  const HugepageFile file = hugepage_count_file(need.page, need.node);
  auto written = write_hugepage_count(file.path, need.page, counts.total_count + missing);
  if (written.ok()) return written;
  return Error(written.error()).set_cure("%s", kGiveAllRights);
}

}  // namespace

void open_missing_streams() noexcept {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0 && !stands_in(stream)) continue;
    const int opened = open(stream == STDIN_FILENO ? "/dev/null" : "/dev/kmsg", O_RDWR);
    if (opened < 0) return;
    if (opened == stream) continue;
    dup2(opened, stream);
    close(opened);
  }
}

bool wait_for_device(const char* name, const std::function<bool()>& is_there) {
  const uint64_t deadline_ns = monotonic_ns() + kDeviceWaitNs;
  char doing[128];
  std::snprintf(doing, sizeof doing, "waiting for %s", name);
  Progress progress(doing, {.wait_max_ns = kDeviceWaitNs});
  while (!is_there()) {
    if (monotonic_ns() >= deadline_ns) return false;
    const timespec pause = {0, kDevicePollNs};
    nanosleep(&pause, nullptr);
    progress.look();
  }
  return true;
}

Result<void> raise_limits() noexcept {
  const rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_MEMLOCK, &all) != 0) {
    return error_from_errno("raising the limit of locked memory").set_cure("%s", kGiveAllRights);
  }
  const auto files = read_number_file("/proc/sys/fs/nr_open");
  if (!files) {
    return error_from_errno("reading /proc/sys/fs/nr_open, the maximum of open files")
        .set_cure("boot a kernel with sysctl in its /proc");
  }
  const rlimit most = {*files, *files};
  if (setrlimit(RLIMIT_NOFILE, &most) != 0) {
    return error_from_errno("raising the limit of open files").set_cure("%s", kGiveAllRights);
  }
  return {};
}

uint64_t capabilities_to_keep(const Configuration& configuration) noexcept {
  uint64_t kept = uint64_t{1} << CAP_SYS_BOOT;
  const bool copies =
      !configuration.processes.empty() && !configuration.messages.single_copy.empty();
  if (copies) kept |= uint64_t{1} << CAP_SYS_PTRACE;
  return kept;
}

void reserve_hugepages(const AppliancePlan& plan) {
  for (const HugepageNeed& need : hugepage_needs(plan)) {
    if (auto reserved = reserve(need); !reserved.ok()) log_error(reserved.error());
  }
}

Result<void> take_ctrl_alt_del() noexcept {
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  // Blocked until the appliance waits for it: the first process ignores signals that it does not
  // handle.
  pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
  if (reboot(RB_DISABLE_CAD) == 0) return {};
  return error_from_errno("taking over ctrl-alt-del").set_cure("%s", kGiveAllRights);
}

void give_up_ctrl_alt_del() noexcept { reboot(RB_ENABLE_CAD); }

void sleep_s(uint32_t seconds) noexcept {
  timespec left = {static_cast<time_t>(seconds), 0};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

void end_machine(MachineEnd end) noexcept {
  switch (end) {
    case MachineEnd::kReboot: reboot(RB_AUTOBOOT); break;
    case MachineEnd::kPowerOff: reboot(RB_POWER_OFF); break;
    case MachineEnd::kHalt: reboot(RB_HALT_SYSTEM); break;
  }
  // Reached only without the right to reboot.
  for (;;) pause();
}

const char* to_text(MachineEnd end) noexcept {
  switch (end) {
    case MachineEnd::kReboot: return "reboot";
    case MachineEnd::kPowerOff: return "power-off";
    case MachineEnd::kHalt: break;
  }
  return "halt";
}

}  // namespace bedplate
