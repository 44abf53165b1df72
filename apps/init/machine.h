// Settings of the whole machine that a first process has to make: its limits, its hugepages, and
// its end. Only process 1 calls these functions. Threads: the main thread; any thread may call the
// functions that are fit for signal handlers.
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
    "give the first process all rights: no container, no system call filter";

// Opens missing standard streams, so that no later file gets their descriptors: standard input on
// /dev/null, the others on the kernel's log. A kernel without a console starts the first process
// without them. Requires: /dev is mounted.
void open_missing_streams() noexcept;

// Calls `is_there` until it returns true, for at most 10 s: a driver may find its device after its
// module was loaded. After a while it logs that it waits for `name`. Returns the last result.
bool wait_for_device(const char* name, const std::function<bool()>& is_there);

// Raises the limits of this process: of locked memory to all memory, of open files to the kernel's
// maximum.
Result<void> raise_limits() noexcept;

// The capabilities that the runtime needs from the seal on, one bit for each: to end the machine
// and, if processes join and [messages] single_copy is not empty, to copy their memory. The plan
// has the capabilities that services need.
uint64_t capabilities_to_keep(const Configuration& configuration) noexcept;

// Makes the kernel provide as many free hugepages, of each size and on each node, as `plan` takes
// and the kernel's command line did not reserve. If too little memory would be left for the kernel,
// it logs that and does not try. Preflight reports pages that the kernel could not find.
void reserve_hugepages(const AppliancePlan& plan);

// From now on ctrl-alt-del sends SIGINT to this process. Blocks SIGINT on the calling thread: it
// stays pending until the appliance serves.
Result<void> take_ctrl_alt_del() noexcept;

// From now on ctrl-alt-del makes the kernel reset at once: for a user whose machine hangs in the
// next steps. Fit for signal handlers.
void give_up_ctrl_alt_del() noexcept;

// Sleeps the whole time, even if signals interrupt it. Fit for signal handlers.
void sleep_s(uint32_t seconds) noexcept;

// Ends the machine, or stops it for good. Fit for signal handlers.
[[noreturn]] void end_machine(MachineEnd end) noexcept;

const char* to_text(MachineEnd end) noexcept;

}  // namespace bedplate
