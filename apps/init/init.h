// `bedplate` as the first process of an image: the machine around the appliance. The kernel starts
// /init; nothing else runs there, no shell, no other service.
//
//     mounts -> configuration -> modules -> network -> limits and hugepages -> the appliance
//
// An error on the way goes to the console, and the machine ends as [crash] says.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "apps/services/service.h"

namespace bedplate {

// The functions of libbedplate-init.a, which a program that is also an image's first process links.
struct InitPart {
  bool (*is_init)(int count, char** words) noexcept;
  int (*main)(int count, char** words, std::span<Service* const> services);
  std::vector<std::string> (*needed_modules)(const Configuration& configuration,
                                             const AppliancePlan& plan);
};

// Whether this process is an image's `init`: it is called so, and is process 1, or the kernel
// started it for a dump. Every other is an ordinary program.
bool is_init(int count, char** words) noexcept;

// Runs the machine to its end, with the program's `services`, which live to the end. Returns only
// if a dump's words make no sense.
int init_main(int count, char** words, std::span<Service* const> services);

}  // namespace bedplate
