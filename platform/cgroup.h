// Control groups: how much memory and how many hugepages they allow to this process.
//
// Hugepages that are free in the system are no use beyond the hugetlb limit of a container: they
// then fail one by one, when they are touched. Both versions of the interface are read, and every
// group from the process's own up to the topmost that can be seen, since each of them counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bedplate {

enum class CgroupResource { kMemory, kHugepages2MiB, kHugepages1GiB };

struct CgroupLimit {
  std::string file;  // the one that sets it
  uint64_t limit_bytes = 0;
  uint64_t available_bytes = 0;  // not used yet, or used by caches that the kernel would drop
};

// Every limit of `resource` on this process; none without controllers or without /proc. `root` is
// put before /proc and /sys: "" is this machine.
std::vector<CgroupLimit> cgroup_limits(CgroupResource resource, const std::string& root = "");

}  // namespace bedplate
