// The core dump of a crash, beside its record: a core file on a block device, for a debugger.
//
// By default the kernel leaves memory on hugepages out, hence the heap and what services serve. An
// image has no place for a file of that size but a device of its own; the kernel hands the dump to
// a second `bedplate`, which writes it there and ends the machine.
#pragma once

#include "apps/init/image_settings.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/result.h"

namespace bedplate {

// `init dump-core PROCESS DEVICE END DELAY_S`, as the kernel is told to start it.
inline constexpr const char* kDumpCore = "dump-core";

// Tells the kernel what to leave out of a dump, and which program gets it; without [crash] dump,
// turns dumps off. Requires: the pool is reserved and not sealed.
Result<void> choose_dump(const CrashSettings& settings, PinnedPool& pool) noexcept;

// Writes the standard input to a device and ends the machine; says how much of it there is. Returns
// only when the words make no sense, or PROCESS is not the first.
int dump_core(int count, char** words) noexcept;

}  // namespace bedplate
