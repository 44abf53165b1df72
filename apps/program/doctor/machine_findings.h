// Findings from /proc and /sys about a machine: its kernel, its cores, its memory, its IOMMU.
//
// They are about things that make an appliance slow or jittery, or that a device needs.
// doctor_command.cc probes the things that no file tells.
// `root` stands before /proc, /sys and /dev: "" is this machine; tests have one of their own. A
// kernel without a file lacks the feature: its line is good, or left out.
// Threads: any. It allocates: for commands alone.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "apps/program/doctor/finding.h"

namespace bedplate {

// Findings that matter to every appliance. `asked`: the cores of its shards; empty: all.
std::vector<Finding> machine_findings(const std::set<int>& asked, const std::string& root = "");

// Findings that matter to some configurations: preflight knows to which.
std::vector<Finding> device_findings(const std::string& root = "");

}  // namespace bedplate
