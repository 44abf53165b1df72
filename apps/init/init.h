// `bedplate` as the first process of an image: the machine around the appliance. The kernel starts
// /init; nothing else runs there, no shell, no other service.
//
//     mounts -> configuration -> modules -> network -> limits and hugepages -> the appliance
//
// Whatever is refused on the way is told on the console, and the machine ends as [crash] says.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/configuration.h"
#include "apps/boot/service.h"

namespace bedplate {

// What a program that is also the first process of an image has linked in: libbedplate-init.a.
struct InitPart {
  bool (*is_init)(int count, char** words) noexcept;
  int (*main)(int count, char** words, std::span<Service* const> services);
  std::vector<std::string> (*needed_modules)(const Configuration& configuration,
                                             const AppliancePlan& plan);
};

// Whether a process with these words is meant: it is called `init`, and is process 1, or was
// started by the kernel for a dump. Every other is an ordinary program.
bool is_init(int count, char** words) noexcept;

// Runs the machine to its end, with the program's `services`, which are there to the end.
// Returns only where a dump's words make no sense.
int init_main(int count, char** words, std::span<Service* const> services);

}  // namespace bedplate
