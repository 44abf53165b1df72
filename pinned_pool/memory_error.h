// Says whose page it was when memory fails under the pool: a SIGBUS names the owner before it ends
// the process as it would have ended anyway. Likewise of a file that is mapped, and that another
// process has cut short: its name is said.
//
// The usual cause is a memory error of the hardware (BUS_MCEERR_AR: the page was touched, or
// BUS_MCEERR_AO: the kernel found it and says so beforehand).
#pragma once

#include <cstdint>

namespace bedplate {

// From now on, for the whole process. A SIGBUS elsewhere stays as silent as ever.
void report_memory_errors() noexcept;

// At [begin, begin + bytes) the file `path` is mapped, until forget_mapped_file(begin). There are
// few places: a file for which there is none is not named. Ownership: `path` lives as long.
// Threads: any.
void name_mapped_file(const void* begin, uint64_t bytes, const char* path) noexcept;
// Before it is unmapped. Does nothing where it was not named.
void forget_mapped_file(const void* begin) noexcept;

}  // namespace bedplate
