// Keeps the shards' threads on their cores.
//
// The kernel moves a pinned thread silently: if the cpuset of its control group shrinks, if a core
// goes offline, or if somebody runs taskset. So the main thread looks at each shard's thread now
// and then, pins it again, and counts the move. A thread that cannot be pinned again raises an
// alert until it is back.
#pragma once

#include <vector>

#include <sys/types.h>

#include "apps/boot/runtime_counters.h"
#include "platform/log_limit.h"

namespace bedplate {

class CoreWatch {
 public:
  // Adds a thread that is pinned to core `cpu`. `name` and `counters` outlive this object. Call it
  // before the seal: it allocates.
  void add(const char* name, pid_t thread, int cpu, ShardCounters& counters);
  // Looks at all added threads. Requires: each thread exists. Threads: one. Cost: one system call
  // for each thread, two for a thread that was moved.
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
