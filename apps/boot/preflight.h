// Preflight: everything that this machine lacks for a configuration, in one report.
//
// It looks before anything is taken, and does not stop at the first finding, so that an
// administrator can mend everything at once. Each finding carries the command that cures it.
#pragma once

#include <string>
#include <vector>

#include "alloc/interception_decision.h"
#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "platform/hugepage.h"
#include "platform/result.h"

namespace bedplate {

// How many hugepages of one size a plan takes from one node, or (kAnyNode) from anywhere; on a
// machine with one node all needs are kAnyNode.
struct HugepageNeed {
  PageSize page = PageSize::k2MiB;
  int node = kAnyNode;
  uint64_t count = 0;
};
// Leaves out nodes that do not exist: check_nodes reports those.
std::vector<HugepageNeed> hugepage_needs(const AppliancePlan& plan);

// How many more pages must be free. Errors: the kernel would have no memory left if it gave them;
// it hands out hugepages until then, and hangs for good.
Result<uint64_t> missing_hugepages(const HugepageNeed& need) noexcept;

// Checks NUMA nodes, hugepages (on each node), the limits of control groups, of locked memory and
// of descriptors, cores, users, PCI devices of services, how memory is accounted, and io_uring with
// the memory that it takes. Raises this process's soft limits to its hard ones. `cgroup_root`: see
// cgroup_limits(). Returns what is missing; empty: nothing.
std::vector<Error> preflight(const Configuration& configuration, const AppliancePlan& plan,
                             const std::string& cgroup_root = "");

// Checks that a page that an outsider gave back (outsiders.h) can be allocated again: with strict
// accounting another process may have taken that memory, and the next touch ends this process.
// `file` is the kernel's setting.
Result<void> check_overcommit(const Configuration& configuration,
                              const char* file = "/proc/sys/vm/overcommit_memory") noexcept;

// Checks that malloc hands out the memory that the configuration expects. Errors (kConfiguration):
// it does not.
Result<void> check_heap_expectation(HeapExpectation expected,
                                    const InterceptionDecision& decision) noexcept;

// Tries io_uring in the way that sockets would use it. Errors: it does not work here.
Result<void> probe_io_uring() noexcept;

}  // namespace bedplate
