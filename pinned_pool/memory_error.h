// Says whose page it was when memory fails under the pool: a SIGBUS names the owner before it ends
// the process as it would have ended anyway.
//
// The usual cause is a memory error of the hardware (BUS_MCEERR_AR: the page was touched, or
// BUS_MCEERR_AO: the kernel found it and says so beforehand).
#pragma once

namespace bedplate {

// From now on, for the whole process. A SIGBUS outside the pool stays as silent as ever.
void report_memory_errors() noexcept;

}  // namespace bedplate
