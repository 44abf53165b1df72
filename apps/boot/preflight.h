// Preflight: everything that this machine lacks for a configuration, in one report.
//
// It looks before anything is taken, and it does not stop at the first finding: an administrator
// mends all of it at once. Each finding carries the command that cures it.
#pragma once

#include <string>
#include <vector>

#include "alloc/interception_decision.h"
#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "platform/hugepage.h"
#include "platform/result.h"

namespace bedplate {

// How many hugepages of one size a plan takes from one node, or (kAnyNode) from anywhere; a machine
// with one node has that form only.
struct HugepageNeed {
  PageSize page = PageSize::k2MiB;
  int node = kAnyNode;
  uint64_t count = 0;
};
// Nodes that are not there are left out: check_nodes speaks of them.
std::vector<HugepageNeed> hugepage_needs(const AppliancePlan& plan);

// How many more must be free. Errors: the kernel would have nothing left if it gave them; it hands
// out hugepages until then, and stops for good.
Result<uint64_t> missing_hugepages(const HugepageNeed& need) noexcept;

// Checks NUMA nodes, hugepages (on each node), the limits of control groups, of locked memory and
// of descriptors, cores, users, PCI devices of services, how memory is accounted, and io_uring with
// what it takes, and raises this process's soft limits to its hard ones. `cgroup_root` is that of
// cgroup_limits(). Returns what is missing; empty is good.
std::vector<Error> preflight(const Configuration& configuration, const AppliancePlan& plan,
                             const std::string& cgroup_root = "");

// Checks that a page that an outsider gave back (outsiders.h) can be had again: with strict
// accounting of memory another process may have taken its place, and the next touch ends this one.
// `file` is the kernel's setting.
Result<void> check_overcommit(const Configuration& configuration,
                              const char* file = "/proc/sys/vm/overcommit_memory") noexcept;

// Checks that malloc hands out what the configuration expects. Errors (kConfiguration): it does
// not.
Result<void> check_heap_expectation(HeapExpectation expected,
                                    const InterceptionDecision& decision) noexcept;

// Tries io_uring as a configuration with it for its sockets would use it. Errors: it does not work
// here.
Result<void> probe_io_uring() noexcept;

}  // namespace bedplate
