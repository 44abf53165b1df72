#include "apps/boot/core_watch.h"

#include "platform/cpu.h"
#include "platform/log.h"

namespace bedplate {

void CoreWatch::add(const char* name, pid_t thread, int cpu, ShardCounters& counters) {
  watched_.push_back({name, thread, cpu, &counters});
}

void CoreWatch::look() noexcept {
  for (Watched& each : watched_) {
    const bool was_away = each.counters->is_off_core.read() != 0;
    if (!is_pinned(each.thread, each.cpu)) {
      bring_back(each);
    } else if (was_away) {
      each.counters->is_off_core.set(0);
      BP_LOG_INFO("shard %s is on core %d again", each.name, each.cpu);
    }
  }
}

// A thread that stays off its core counts as moved once, however often it is pinned again.
void CoreWatch::bring_back(Watched& each) noexcept {
  const bool was_away = each.counters->is_off_core.read() != 0;
  auto pinned = pin_thread(each.thread, each.cpu);
  each.counters->is_off_core.set(pinned.ok() ? 0 : 1);
  if (!was_away) each.counters->core_moves.add(1);
  if ((was_away && !pinned.ok()) || !each.limit.try_pass("shards that were moved")) return;
  Error error = error_while("keeping shard %s on core %d", each.name, each.cpu);
  if (pinned.ok()) {
    error.set_answer("its thread had been moved away, and was pinned again");
    error.set_cure("find what changes the cpuset of its control group, or runs taskset on it");
  } else {
    error.set_answer("its thread was moved away, and cannot go back (%s)", pinned.error().answer);
    error.set_cure("return that core to the cpuset of its control group (cpuset.cpus, AllowedCPUs= "
                   "of its unit), or choose another `cpu`");
  }
  log_error(error);
}

}  // namespace bedplate
