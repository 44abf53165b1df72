// Names the owner of a page when memory fails under the pool: a SIGBUS logs the owner, and then
// ends the process as it would have ended anyway. It also names a mapped file that another process
// has cut short.
//
// The usual cause is a memory error of the hardware (BUS_MCEERR_AR: the page was touched, or
// BUS_MCEERR_AO: the kernel found it and says so beforehand).
#pragma once

#include <cstdint>

namespace bedplate {

// Installs the SIGBUS handler of the process. A SIGBUS elsewhere logs nothing.
void report_memory_errors() noexcept;

// Records that the file `path` is mapped at [begin, begin + bytes), until
// forget_mapped_file(begin). There are few slots: a file without a slot is not named. Ownership:
// `path` lives as long. Threads: any.
void name_mapped_file(const void* begin, uint64_t bytes, const char* path) noexcept;
// Called before the file is unmapped. Does nothing if it was not recorded.
void forget_mapped_file(const void* begin) noexcept;

}  // namespace bedplate
