// What /proc and /sys say of a machine, judged: its kernel, its cores, its memory, its IOMMU.
//
// These are things that make an appliance slow or jittery, or that a device needs. What a look at a
// file does not answer is probed by doctor_command.cc.
// `root` stands before /proc, /sys and /dev: "" is this machine; tests have one of their own. What
// a kernel has no file for is not there: such a line is good, or left out.
// Threads: any. It allocates: for commands alone.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "apps/program/finding.h"

namespace bedplate {

// What each appliance meets. `asked`: the cores that its shards have; empty: any.
std::vector<Finding> machine_findings(const std::set<int>& asked, const std::string& root = "");

// What a configuration may need or not: preflight knows whether it does.
std::vector<Finding> device_findings(const std::string& root = "");

}  // namespace bedplate
