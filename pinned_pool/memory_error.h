// Names the owner of a page when memory fails under the pool: the handler of SIGBUS logs the owner,
// and then calls the previous handler, or ends the process as without a handler. It also names a
// mapped file that another process has cut short.
//
// The usual cause is a memory error of the hardware: the process touched the page (BUS_MCEERR_AR),
// or the kernel found the error before a touch (BUS_MCEERR_AO).
#pragma once

#include <cstdint>

namespace bedplate {

// Installs the SIGBUS handler of the process. A SIGBUS outside the pool and the recorded files logs
// nothing.
void report_memory_errors() noexcept;

// Records that the file `path` is mapped at [begin, begin + bytes), until
// forget_mapped_file(begin). There are 4 slots: a file without a slot is not named. Ownership:
// `path` lives as long. Threads: any.
void name_mapped_file(const void* begin, uint64_t bytes, const char* path) noexcept;
// Called before the file is unmapped. Does nothing if it was not recorded. Threads: any.
void forget_mapped_file(const void* begin) noexcept;

}  // namespace bedplate
