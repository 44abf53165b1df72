// The copy itself, and the windows that it uses.
#include <algorithm>
#include <cerrno>
#include <iterator>

#include "platform/assert.h"
#include "transport/single_copy/guarded_copy_datapath.h"
#include "transport/single_copy/peer_end.h"
#include "transport/single_copy/xpmem.h"
#include "transport/single_copy/xpmem_abi.h"

namespace bedplate {
namespace {

// The end of a process's addresses: the module refuses a window that extends beyond it.
constexpr uint64_t kAddressEnd = (uint64_t{1} << 47) - 4096;
static_assert(kAddressEnd % 4096 == 0 && XpmemAccess::kWindowBytes % 4096 == 0);  // all whole pages

}  // namespace

bool XpmemAccess::is_valid() const noexcept {
  for (const Window& window : windows_) {
    if (window.local == nullptr) continue;
    if (window.begin % kWindowBytes != 0 || window.begin >= kAddressEnd) return false;
    const auto is_another = [&window](const Window& other) {
      return &other != &window && other.local != nullptr && other.begin == window.begin;
    };
    if (std::any_of(std::begin(windows_), std::end(windows_), is_another)) return false;
  }
  return oldest_ < kWindowCount;
}

// Only the module may unmap the mapping: after any other munmap it would kill this process.
void XpmemAccess::unmap(Window& window) noexcept {
  if (window.local == nullptr) return;
  xpmem::Detach detach{.address = reinterpret_cast<uint64_t>(window.local)};
  ioctl(device_, xpmem::kDetach, &detach);
  window = {};
}

// Returns the local address of the window onto the peer's memory from `begin` on; nullptr: there is
// none.
std::byte* XpmemAccess::map(uint64_t begin) noexcept {
  BP_DCHECK(begin % kWindowBytes == 0 && begin < kAddressEnd);
  for (const Window& window : windows_) {
    if (window.local != nullptr && window.begin == begin) return window.local;
  }
  Window& window = windows_[oldest_];
  oldest_ = (oldest_ + 1) % kWindowCount;
  unmap(window);
  xpmem::Attach attach{.permit = permit_,
                       .offset = static_cast<int64_t>(begin),
                       .bytes = std::min(kWindowBytes, kAddressEnd - begin)};
  if (ioctl(device_, xpmem::kAttach, &attach) != 0) return nullptr;
  BP_ASSERT(attach.address != 0);
  window = {begin, reinterpret_cast<std::byte*>(attach.address)};
  return window.local;
}

CopyOutcome XpmemAccess::copy(std::byte* local, const ExposedRange& range, uint64_t offset,
                              uint64_t bytes, bool is_write) noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(offset <= range.bytes && bytes <= range.bytes - offset);
  const uint64_t remote = range.address + offset;
  if (range.key != key_ || remote >= kAddressEnd || bytes > kAddressEnd - remote) {
    errno = EINVAL;
    return {CopyEnd::kRefused, 0};
  }
  uint64_t done = 0;
  while (done < bytes) {
    const uint64_t within = (remote + done) % kWindowBytes;
    const uint64_t piece = std::min(bytes - done, kWindowBytes - within);
    std::byte* const window = map(remote + done - within);
    uint64_t copied = 0;
    if (window != nullptr) {
      errno = EFAULT;  // a copy that stops has met an inaccessible page
      copied = is_write ? guarded_copy(window + within, local + done, piece)
                        : guarded_copy(local + done, window + within, piece);
    }
    BP_DCHECK(copied <= piece && within + piece <= kWindowBytes);
    done += copied;
    if (copied < piece) {
      const int number = errno;
      const bool is_gone = has_ended(pidfd_);
      errno = number;
      return {is_gone ? CopyEnd::kGone : CopyEnd::kRefused, done};
    }
  }
  return {CopyEnd::kDone, done};
}

CopyOutcome XpmemAccess::read(std::byte* local, const ExposedRange& range, uint64_t offset,
                              uint64_t bytes) noexcept {
  return copy(local, range, offset, bytes, false);
}

CopyOutcome XpmemAccess::write(const std::byte* local, const ExposedRange& range, uint64_t offset,
                               uint64_t bytes) noexcept {
  return copy(const_cast<std::byte*>(local), range, offset, bytes, true);
}

}  // namespace bedplate
