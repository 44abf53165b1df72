// Settings of the whole machine that a first process has to make: its limits, its hugepages, and
// its end. Only process 1 calls them. Threads: the main thread, except functions fit for signal
// handlers.
#pragma once

#include <cstdint>
#include <functional>

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "apps/init/image_settings.h"
#include "platform/result.h"

namespace bedplate {

// The cure if the first process is refused a right that it needs.
inline constexpr const char* kGiveAllRights =
    "give the first process all rights: no container, no filter of system calls";

// Sends missing standard streams to the kernel's log, so that no lasting file takes their numbers:
// a kernel without a console starts the first process without them. Requires: /dev is mounted.
void open_missing_streams() noexcept;

// Asks `is_there` again and again, for 10 s at most: a driver may find its device after its module
// was loaded. If that takes long, it logs that it waits for `name`. Returns the last answer.
bool wait_for_device(const char* name, const std::function<bool()>& is_there);

// Lets this process lock as much memory as there is, and open as many files as the kernel allows.
Result<void> raise_limits() noexcept;

// The capabilities that are needed from the seal on: to end the machine and, if processes join, to
// copy their memory. One bit for each.
uint64_t capabilities_to_keep(const Configuration& configuration) noexcept;

// Makes the kernel have as many free hugepages, of each size and on each node, as `plan` takes and
// its command line did not reserve. Logs what it does not try because nothing would be left for
// the kernel; preflight will say which pages the kernel could not find.
void reserve_hugepages(const AppliancePlan& plan);

// Ctrl-alt-del is SIGINT to this process from now on, which takes it when it serves.
Result<void> take_ctrl_alt_del() noexcept;

// From now on ctrl-alt-del is the kernel's immediate reset: the way out if the next steps hang or
// take long. Fit for signal handlers.
void give_up_ctrl_alt_del() noexcept;

// Sleeps the whole time, also if signals interrupt it. Fit for signal handlers.
void sleep_s(uint32_t seconds) noexcept;

// Ends the machine, or stops it for good. Fit for signal handlers.
[[noreturn]] void end_machine(MachineEnd end) noexcept;

const char* to_text(MachineEnd end) noexcept;

}  // namespace bedplate
