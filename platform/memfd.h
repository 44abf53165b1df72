// memfds: the one place that creates them.
#pragma once

#include "platform/file.h"

namespace bedplate {

// memfd_create(2) with `flags`, close-on-exec, sealable, and never executable: if vm.memfd_noexec
// is 2, Linux 6.3 to 6.5 refuse a call without MFD_NOEXEC_SEAL. Kernels before 6.3 do not know that
// flag, so they are called without it. If the result is not open, errno says why. Threads: any.
Fd make_memfd(const char* name, unsigned flags = 0) noexcept;

}  // namespace bedplate
