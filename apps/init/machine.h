// Settings of the whole machine that a first process has to make: its limits, its hugepages, and
// its end. Called by number 1 alone. Threads: the main thread's, but for what is fit for signal
// handlers.
#pragma once

#include <cstdint>
#include <functional>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/configuration.h"
#include "platform/result.h"

namespace bedplate {

// The cure where the first process is refused what it has a right to.
inline constexpr const char* kGiveAllRights =
    "give the first process all rights: no container, no filter of system calls";

// Where the kernel found no console, it starts the first process without standard streams. They go
// to the kernel's log then: no lasting file may take their place. Requires: /dev is mounted.
void open_missing_streams() noexcept;

// Asks `is_there` again and again, for 10 s at most: a driver may find its device after its module
// was loaded. Where that takes long it says that it waits for `name`. Returns the last answer.
bool wait_for_device(const char* name, const std::function<bool()>& is_there);

// Lets this process lock as much memory as there is, and open as many files as the kernel allows.
Result<void> raise_limits() noexcept;

// The capabilities that are needed from the seal on: to end the machine, and where processes join
// to copy their memory. One bit for each.
uint64_t capabilities_to_keep(const Configuration& configuration) noexcept;

// Makes the kernel have as many free hugepages, of each size and on each node, as `plan` takes and
// its command line did not reserve. Logs what it does not try because nothing would be left for
// the kernel; what the kernel could not find, preflight will say.
void reserve_hugepages(const AppliancePlan& plan);

// Ctrl-alt-del is SIGINT to this process from now on, which takes it when it serves.
Result<void> take_ctrl_alt_del() noexcept;

// From now on it is the kernel's own reset at once: the way out where what follows hangs or takes
// its time. Fit for signal handlers.
void give_up_ctrl_alt_del() noexcept;

// Fit for signal handlers, which it also outlasts.
void sleep_s(uint32_t seconds) noexcept;

// Ends the machine, or stops it for good. Fit for signal handlers.
[[noreturn]] void end_machine(MachineEnd end) noexcept;

const char* name_of(MachineEnd end) noexcept;

}  // namespace bedplate
