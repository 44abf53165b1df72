// Findings from /proc and /sys about a machine: its kernel, its cores, its memory, its IOMMU.
//
// They report what makes an appliance slow or jittery, and what a device needs. doctor_command.cc
// probes features that no file tells. `root` is a prefix of /proc, /sys and /dev: "" is this
// machine; tests have their own. If a file is missing, the kernel lacks the feature: the finding is
// good, or left out. Threads: any. It allocates: only for commands.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "apps/program/doctor/finding.h"

namespace bedplate {

// Findings that matter to every appliance. `asked`: the cores of its shards; empty: all.
std::vector<Finding> machine_findings(const std::set<int>& asked, const std::string& root = "");

// Findings that matter to some configurations; preflight knows which.
std::vector<Finding> device_findings(const std::string& root = "");

}  // namespace bedplate
