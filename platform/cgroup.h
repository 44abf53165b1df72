// Control groups: how much memory and how many hugepages they allow this process.
//
// Hugepages that are free in the system are of no use beyond the hugetlb limit of a container:
// touching them fails, page by page. cgroup_limits() reads both versions of the interface, and
// every group from the process's own up to the topmost visible one: each of them limits the
// process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bedplate {

enum class CgroupResource { kMemory, kHugepages2MiB, kHugepages1GiB };

struct CgroupLimit {
  std::string file;  // the file that sets it
  uint64_t limit_bytes = 0;
  uint64_t available_bytes = 0;  // not used yet, or used by caches that the kernel would drop
};

// All limits of `resource` on this process; empty without controllers or without /proc. A group
// without a limit is left out; in the first version its limit is a huge number, and is included.
// `root` is a prefix of /proc and /sys: "" is this machine.
std::vector<CgroupLimit> cgroup_limits(CgroupResource resource, const std::string& root = "");

}  // namespace bedplate
