// Creates memfds. Other code of Bedplate does not call memfd_create(2).
#pragma once

#include "platform/file.h"

namespace bedplate {

// memfd_create(2) with `flags`, close-on-exec and sealable. From Linux 6.3 on the file is never
// executable, too: if vm.memfd_noexec is 2, Linux 6.3 to 6.5 refuse a call without MFD_NOEXEC_SEAL.
// Kernels before 6.3 do not know that flag, so they are called without it. If the result is not
// open, errno says why. Threads: any.
Fd make_memfd(const char* name, unsigned flags = 0) noexcept;

}  // namespace bedplate
