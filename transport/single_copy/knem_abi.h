// The requests of the module knem (interface version 0xd), at /dev/knem.
//
// A process declares a region of its memory and passes the region's cookie on. A process with the
// cookie asks the kernel to copy between the region and its own memory. These declarations are our
// own, after the interface that KNEM publishes; docs/single_copy.md has them as a table.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/ioctl.h>

namespace bedplate::knem {

inline constexpr uint32_t kAbi = 0xd;

struct Info {
  uint32_t abi = 0;  // all fields: out
  uint32_t features = 0;
  uint32_t ignored_flags = 0;
  uint32_t forced_flags = 0;
};
struct Piece {
  uint64_t address = 0;
  uint64_t bytes = 0;
};
struct CreateRegion {
  uint64_t pieces = 0;  // the address of an array of Piece
  uint32_t piece_count = 0;
  uint32_t flags = 0;
  uint32_t protection = 0;  // PROT_READ, PROT_WRITE: the rights of others
  uint32_t padding = 0;
  uint64_t cookie = 0;  // out
};
struct InlineCopy {
  uint64_t local_pieces = 0;  // the address of an array of Piece
  uint32_t local_piece_count = 0;
  uint32_t is_write = 0;
  uint64_t cookie = 0;
  // In the region. The module copies nothing beyond the region's end, and reports no error.
  uint64_t offset = 0;
  uint32_t flags = 0;
  uint32_t status = 0;  // out
  uint32_t status_index = 0;
  uint32_t padding = 0;
};
static_assert(sizeof(Info) == 16 && sizeof(Piece) == 16 && sizeof(CreateRegion) == 32 &&
              sizeof(InlineCopy) == 48);
static_assert(offsetof(CreateRegion, cookie) == 24 && offsetof(InlineCopy, cookie) == 16 &&
              offsetof(InlineCopy, status) == 36);

// As the module defines them; the directions look wrong but are not.
inline constexpr unsigned long kGetInfo = _IOW('K', 0x10, Info);
inline constexpr unsigned long kCreateRegion = _IOWR('K', 0x21, CreateRegion);
inline constexpr unsigned long kDestroyRegion = _IOR('K', 0x22, uint64_t);  // takes the cookie
inline constexpr unsigned long kInlineCopy = _IOR('K', 0x33, InlineCopy);
static_assert(kGetInfo == 0x40104b10 && kCreateRegion == 0xc0204b21 &&
              kDestroyRegion == 0x80084b22 && kInlineCopy == 0x80304b33);

inline constexpr uint32_t kStatusDone = 1;

}  // namespace bedplate::knem
