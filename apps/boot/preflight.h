// Preflight: everything that this machine lacks for a configuration, in one report.
//
// It runs before boot takes any resource. It does not stop at the first finding, so that an
// administrator can mend everything at once. Each finding says what cures it.
#pragma once

#include <string>
#include <vector>

#include "alloc/interception_decision.h"
#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "platform/hugepage.h"
#include "platform/result.h"

namespace bedplate {

// The number of hugepages of one size that a plan takes from one node, or from any node (kAnyNode).
// On a machine with one node, `node` is always kAnyNode.
struct HugepageNeed {
  PageSize page = PageSize::k2MiB;
  int node = kAnyNode;
  uint64_t count = 0;
};
// Leaves out nodes that do not exist: check_nodes reports those.
std::vector<HugepageNeed> hugepage_needs(const AppliancePlan& plan);

// The number of free hugepages that the plan lacks. Errors: so many hugepages would take the
// kernel's own memory. The kernel does not refuse to reserve them, and then hangs for good.
Result<uint64_t> missing_hugepages(const HugepageNeed& need) noexcept;

// Checks /proc and /sys, NUMA nodes, hugepages (on each node), free memory, the limits of control
// groups, of address space, of locked memory, of file sizes and of descriptors, cores, users, PCI
// devices, the services' own needs, and the overcommit policy. If the configuration uses io_uring,
// checks that it works here and can register the pool. Raises this process's soft limits to its
// hard ones. `cgroup_root`: see cgroup_limits(). Returns an error for each thing that is missing.
std::vector<Error> preflight(const Configuration& configuration, const AppliancePlan& plan,
                             const std::string& cgroup_root = "");

// Checks that the kernel does not account memory strictly if there is an outsider (outsiders.h). An
// outsider can free a page of shared memory. With strict accounting another process may then take
// that memory, and the kernel ends this process when it touches the page.
// `file` is the kernel's setting.
Result<void> check_overcommit(const Configuration& configuration,
                              const char* file = "/proc/sys/vm/overcommit_memory") noexcept;

// Checks that malloc takes memory from where [alloc] expect says: the pool, or ordinary memory.
// Errors (kConfiguration): it does not.
Result<void> check_heap_expectation(HeapExpectation expected,
                                    const InterceptionDecision& decision) noexcept;

// Tries io_uring in the way that sockets would use it. Errors: it does not work here.
Result<void> probe_io_uring() noexcept;

}  // namespace bedplate
