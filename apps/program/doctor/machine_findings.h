// Findings from /proc and /sys about a machine: its kernel, its cores, its memory, its IOMMU.
//
// They report what makes an appliance slow or jittery, and what a device needs. doctor_command.cc
// probes the features that no file shows. `root` is a prefix of /proc, /sys and /dev: "" is this
// machine; tests have their own. If a file is missing, the kernel lacks the feature: the finding is
// good. Without isolated cores, an IOMMU or VFIO it is a warning; without the kernel's release it
// is a fault. Threads: any. The functions allocate: only for commands.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "apps/program/doctor/finding.h"

namespace bedplate {

// Findings that matter to every appliance. `asked`: the cores of the configuration's shards; empty:
// all cores.
std::vector<Finding> machine_findings(const std::set<int>& asked, const std::string& root = "");

// Findings about the IOMMU and VFIO. They matter only if a service drives a PCI device; preflight
// checks that.
std::vector<Finding> device_findings(const std::string& root = "");

}  // namespace bedplate
