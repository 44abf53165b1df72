// The core dump of a crash, beside the crash record: a core file on a block device, for a debugger.
//
// By default the kernel leaves shared memory on hugepages out of a dump, and with it the heap and
// the data that services serve. An image has no file system for a file of that size, only a device.
// The kernel starts a second `bedplate`, pipes the dump to it, and that process writes the dump to
// the device and ends the machine.
#pragma once

#include "apps/init/image_settings.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/result.h"

namespace bedplate {

// The arguments `init dump-core PROCESS DEVICE END DELAY_S`, with which the kernel starts it.
inline constexpr const char* kDumpCore = "dump-core";

// Tells the kernel which memory to leave out of a dump, and which program gets the dump; without
// [crash] dump, turns dumps off. Requires: the pool is reserved and not sealed.
Result<void> choose_dump(const CrashSettings& settings, PinnedPool& pool) noexcept;

// Writes standard input to a device, reports how much was written, and ends the machine. Returns 2,
// and writes nothing, only if the arguments are wrong, or PROCESS is not the first process.
int dump_core(int count, char** words) noexcept;

}  // namespace bedplate
