// The requests of the module xpmem (2.6, Linux, 64-bit), at /dev/xpmem.
//
// A process makes a segment of its address space; another gets a permit for it and attaches parts:
// mappings that are filled on demand, page by page. These are our own declarations of the interface
// that github.com/hpc/xpmem publishes; docs/single_copy.md has them as a table.
#pragma once

#include <cstdint>

#include <sys/ioctl.h>

namespace bedplate::xpmem {

struct Make {
  uint64_t address = 0;
  uint64_t bytes = 0;
  int32_t permit_type = 0;
  uint32_t padding = 0;
  uint64_t permit_mode = 0;
  int64_t segment = 0;  // out
};
struct Remove {
  int64_t segment = 0;
};
struct Get {
  int64_t segment = 0;
  int32_t flags = 0;
  int32_t permit_type = 0;
  uint64_t permit_value = 0;  // 0
  int64_t permit = 0;         // out
};
struct Release {
  int64_t permit = 0;
};
struct Attach {
  int64_t permit = 0;
  int64_t offset = 0;  // in the segment, a multiple of the page
  uint64_t bytes = 0;
  uint64_t address = 0;  // in: 0, anywhere; out: the address
  int32_t unused_fd = 0;
  int32_t unused_flags = 0;
};
struct Detach {
  uint64_t address = 0;
};
static_assert(sizeof(Make) == 40 && sizeof(Remove) == 8 && sizeof(Get) == 32 &&
              sizeof(Release) == 8 && sizeof(Attach) == 40 && sizeof(Detach) == 8);

// The request numbers carry neither direction nor size.
inline constexpr unsigned long kVersion = _IO('x', 0);  // the call returns the version
inline constexpr unsigned long kMake = _IO('x', 1);
inline constexpr unsigned long kRemove = _IO('x', 2);
inline constexpr unsigned long kGet = _IO('x', 3);
inline constexpr unsigned long kRelease = _IO('x', 4);
inline constexpr unsigned long kAttach = _IO('x', 5);
inline constexpr unsigned long kDetach = _IO('x', 6);
static_assert(kVersion == 0x7800 && kDetach == 0x7806);

inline constexpr int32_t kPermitMode = 1;     // the only permit type: bits as chmod's
inline constexpr int32_t kReadWrite = 2;      // of Get::flags; an attachment needs it
inline constexpr uint64_t kAllBytes = ~0ull;  // of Make::bytes: up to the end of the address space
inline constexpr int kVersionMajor = 2;       // bits 16 to 27 of the version

}  // namespace bedplate::xpmem
