#include "platform/cpu.h"

#include <sched.h>

namespace bedplate {
namespace {

cpu_set_t allowed_cpus() noexcept {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof cpus, &cpus);
  return cpus;
}

}  // namespace

int usable_cpu_count() noexcept {
  const cpu_set_t cpus = allowed_cpus();
  return CPU_COUNT(&cpus);
}

bool cpu_is_usable(int cpu) noexcept {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
  const cpu_set_t cpus = allowed_cpus();
  if (CPU_ISSET(static_cast<unsigned>(cpu), &cpus)) return true;
  if (!pin_this_thread(cpu).ok()) return false;
  sched_setaffinity(0, sizeof cpus, &cpus);
  return true;
}

Result<void> pin_this_thread(int cpu) noexcept { return pin_thread(0, cpu); }

Result<void> pin_thread(pid_t thread, int cpu) noexcept {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<unsigned>(cpu), &cpus);
  if (sched_setaffinity(thread, sizeof cpus, &cpus) != 0) {
    return error_from_errno("pinning a thread to core %d", cpu)
        .set_cure("choose a core that `nproc` and the cpuset of this process offer");
  }
  return {};
}

bool is_pinned(pid_t thread, int cpu) noexcept {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(thread, sizeof cpus, &cpus) != 0) return false;
  return CPU_COUNT(&cpus) == 1 && CPU_ISSET(static_cast<unsigned>(cpu), &cpus);
}

}  // namespace bedplate
