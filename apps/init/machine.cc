#include "apps/init/machine.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fcntl.h>

#include <sys/reboot.h>
#include <sys/resource.h>
#include <unistd.h>

#include "apps/boot/preflight.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/units.h"

namespace bedplate {

Result<void> raise_limits() noexcept {
  const rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_MEMLOCK, &all) != 0) {
    return error_from_errno("raising the limit of locked memory").set_cure("run this as root");
  }
  const auto files = read_number_file("/proc/sys/fs/nr_open");
  const rlimit most = {files.value_or(1024), files.value_or(1024)};
  if (setrlimit(RLIMIT_NOFILE, &most) != 0) {
    return error_from_errno("raising the limit of open files").set_cure("run this as root");
  }
  return {};
}

namespace {

// The kernel hands out hugepages until nothing is left for itself, and then stops for good.
constexpr uint64_t kLeftBytes = 64 * kMiB;

uint64_t available_memory_bytes() noexcept {
  uint64_t kib = 0;
  const auto see = [](const char* line, void* into) {
    std::sscanf(line, "MemAvailable: %" SCNu64, static_cast<uint64_t*>(into));
  };
  if (!read_lines("/proc/meminfo", see, &kib).ok()) return 0;
  return kib * kKiB;
}

Result<void> reserve(const HugepageNeed& need) {
  const HugepageCounts counts = hugepage_counts(need.page, need.node);
  if (!counts.supported || counts.available_count >= need.count) return {};
  const uint64_t missing = need.count - counts.available_count;
  const uint64_t missing_bytes = missing * page_bytes(need.page);
  const uint64_t available_bytes = available_memory_bytes();
  Error error;
  error.set_doing("reserving %" PRIu64 " hugepages of %s", missing,
                  format_bytes(page_bytes(need.page)).text);
  error.set_cure("make [pool] bytes smaller, or add memory");
  if (missing_bytes + kLeftBytes > available_bytes) {
    return error.set_answer("%" PRIu64 " MiB of memory are free, and %" PRIu64
                            " MiB stay the kernel's",
                            available_bytes / kMiB, kLeftBytes / kMiB);
  }
  const HugepageFile file = hugepage_count_file(need.page, need.node);
  const Fd count_file(open(file.path, O_WRONLY | O_CLOEXEC));
  const uint64_t total = counts.total_count + missing;
  if (count_file.is_open() && dprintf(count_file.number(), "%" PRIu64, total) > 0) return {};
  return error.set_answer_errno(errno);
}

}  // namespace

void reserve_hugepages(const AppliancePlan& plan) {
  for (const HugepageNeed& need : hugepage_needs(plan)) {
    if (auto reserved = reserve(need); !reserved.ok()) log_error(reserved.error());
  }
}

void end_machine(MachineEnd end) noexcept {
  switch (end) {
    case MachineEnd::kReboot: reboot(RB_AUTOBOOT); break;
    case MachineEnd::kPowerOff: reboot(RB_POWER_OFF); break;
    case MachineEnd::kHalt: reboot(RB_HALT_SYSTEM); break;
  }
  // Only without the right to.
  for (;;) pause();
}

const char* name_of(MachineEnd end) noexcept {
  switch (end) {
    case MachineEnd::kReboot: return "reboot";
    case MachineEnd::kPowerOff: return "power-off";
    case MachineEnd::kHalt: break;
  }
  return "halt";
}

}  // namespace bedplate
