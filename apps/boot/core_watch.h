// Keeps the shards' threads on their cores.
//
// The kernel moves a pinned thread without a word: if the cpuset of its control group shrinks, if a
// core goes offline, if somebody runs taskset. So the main thread looks at each of them every now
// and then, pins it again, and counts it; a thread that cannot be pinned again is a sign, until it
// is back.
#pragma once

#include <vector>

#include <sys/types.h>

#include "apps/boot/runtime_counters.h"
#include "platform/log_limit.h"

namespace bedplate {

class CoreWatch {
 public:
  // A thread that has been pinned to core `cpu`. `name` stays. Before the seal: it allocates.
  void add(const char* name, pid_t thread, int cpu, ShardCounters& counters);
  // Looks at all of them. Requires: each is there, or was joined. Threads: one. Cost: a system call
  // for each.
  void look() noexcept;

 private:
  struct Watched {
    const char* name;
    pid_t thread;
    int cpu;
    ShardCounters* counters;
    LogLimit limit{3};
  };
  static void bring_back(Watched& each) noexcept;

  std::vector<Watched> watched_;
};

}  // namespace bedplate
