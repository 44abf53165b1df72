// Capabilities: the first process has them all, and needs few of them to serve (capabilities(7)).
#pragma once

#include <cstdint>
#include <string>

#include "apps/boot/configuration.h"
#include "platform/result.h"

namespace bedplate {

// What is needed from the seal on: to end the machine, and where processes join to copy their
// memory. One bit for each.
uint64_t capabilities_to_keep(const Configuration& configuration) noexcept;

// "SYS_BOOT, SYS_PTRACE": the set `kept` for a log.
std::string name_capabilities(uint64_t kept);

// Takes all but `kept` from this thread and all that it starts from now on, for good: bounding set
// included, and no program that it executes gets any back. The user stays: what files let root do
// (/proc/sys, /sys), they still do.
Result<void> keep_capabilities(uint64_t kept) noexcept;

// Whether each thread of this process has `kept` and nothing more. Errors: the first that has more,
// or another set.
Result<void> check_capabilities(uint64_t kept);

}  // namespace bedplate
