// `bedplate` as the first process of an image: it sets up the machine around the appliance. The
// kernel starts /init; no shell and no other service runs.
//
//     mounts -> configuration -> modules -> network -> limits and hugepages -> the appliance
//
// If a step fails, it prints the error on the console, and the machine ends as [crash] says.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "apps/services/service.h"

namespace bedplate {

// The functions of libbedplate-init.a. A program that is also an image's first process links it.
struct InitPart {
  bool (*is_init)(int count, char** words) noexcept;
  int (*main)(int count, char** words, std::span<Service* const> services);
  std::vector<std::string> (*needed_modules)(const Configuration& configuration,
                                             const AppliancePlan& plan);
};

// Whether this process is an image's `init`: it has this name, and it is process 1 or was started
// by the kernel for a dump. Any other process is an ordinary program.
bool is_init(int count, char** words) noexcept;

// Runs the machine to its end, with the program's `services`, which live to the end. A process that
// the kernel starts for a dump writes the dump instead, and returns 2 if its arguments are wrong or
// the dump is not of process 1. Requires: is_init().
int init_main(int count, char** words, std::span<Service* const> services);

}  // namespace bedplate
