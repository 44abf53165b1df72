// The copy itself.
#include <cerrno>

#include "platform/assert.h"
#include "transport/single_copy/knem.h"
#include "transport/single_copy/knem_abi.h"
#include "transport/single_copy/peer_end.h"

namespace bedplate {

// If local pages fail, the module reports an unspecific error. If the region is shorter than the
// peer said, it reports success, and the bytes in `local` stay as they were.
CopyOutcome KnemAccess::copy(std::byte* local, const ExposedRange& range, uint64_t offset,
                             uint64_t bytes, bool is_write) noexcept {
  BP_DCHECK(bytes > 0);
  BP_DCHECK(offset <= range.bytes && bytes <= range.bytes - offset);
  const knem::Piece piece{.address = reinterpret_cast<uint64_t>(local), .bytes = bytes};
  knem::InlineCopy copy{.local_pieces = reinterpret_cast<uint64_t>(&piece),
                        .local_piece_count = 1,
                        .is_write = is_write,
                        .cookie = range.key,
                        .offset = offset};
  int result = 0;
  do {
    result = ioctl(device_, knem::kInlineCopy, &copy);
  } while (result != 0 && errno == EINTR);
  if (result == 0 && copy.status == knem::kStatusDone) return {CopyEnd::kDone, bytes};
  const int number = result == 0 ? EFAULT : errno;
  const bool is_gone = has_ended(pidfd_);
  errno = number;
  return {is_gone ? CopyEnd::kGone : CopyEnd::kRefused, 0};
}

CopyOutcome KnemAccess::read(std::byte* local, const ExposedRange& range, uint64_t offset,
                             uint64_t bytes) noexcept {
  return copy(local, range, offset, bytes, false);
}

CopyOutcome KnemAccess::write(const std::byte* local, const ExposedRange& range, uint64_t offset,
                              uint64_t bytes) noexcept {
  return copy(const_cast<std::byte*>(local), range, offset, bytes, true);
}

}  // namespace bedplate
