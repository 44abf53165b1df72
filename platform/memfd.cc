#include "platform/memfd.h"

#include <cerrno>

#include <sys/mman.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif

namespace bedplate {

Fd make_memfd(const char* name, unsigned flags) noexcept {
  const unsigned all = flags | MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd(memfd_create(name, all | MFD_NOEXEC_SEAL));
  if (!fd.is_open() && errno == EINVAL) fd = Fd(memfd_create(name, all));
  return fd;
}

}  // namespace bedplate
