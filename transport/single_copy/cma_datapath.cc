// The copy itself.
#include <cerrno>

#include <sys/uio.h>

#include "platform/assert.h"
#include "platform/clock.h"
#include "transport/single_copy/cma.h"
#include "transport/single_copy/peer_end.h"

namespace bedplate {
namespace {

// The calls take a pid, which the kernel reuses once its process has ended and been waited for. The
// kernel gives pids out in turn, at least 32768 of them, so none is reused within this time.
constexpr uint64_t kPidStaysNs = 10 * kNsPerMs;

}  // namespace

bool CmaAccess::is_still_the_peer() noexcept {
  const uint64_t now = monotonic_ns();
  BP_DCHECK(now >= seen_ns_);
  if (now - seen_ns_ < kPidStaysNs) return true;
  if (has_ended(peer_.pidfd)) return false;
  seen_ns_ = now;
  return true;
}

CopyOutcome CmaAccess::copy(std::byte* local, uint64_t remote, uint64_t bytes,
                            bool is_write) noexcept {
  BP_DCHECK(bytes > 0);
  BP_DCHECK(bytes <= UINT64_MAX - remote);
  uint64_t done = 0;
  while (done < bytes) {
    if (!is_still_the_peer()) return {CopyEnd::kGone, done};
    // One call copies at most 2 GiB less a page, and stops before an inaccessible page.
    const iovec here{local + done, bytes - done};
    const iovec there{reinterpret_cast<void*>(remote + done), bytes - done};
    const ssize_t copied = is_write ? process_vm_writev(peer_.pid, &here, 1, &there, 1, 0)
                                    : process_vm_readv(peer_.pid, &here, 1, &there, 1, 0);
    if (copied > 0) {
      BP_DCHECK(static_cast<uint64_t>(copied) <= bytes - done);
      done += static_cast<uint64_t>(copied);
      continue;
    }
    if (copied < 0 && errno == EINTR) continue;
    const int number = errno;
    const bool is_gone = (copied < 0 && number == ESRCH) || has_ended(peer_.pidfd);
    errno = number;
    return {is_gone ? CopyEnd::kGone : CopyEnd::kRefused, done};
  }
  return {CopyEnd::kDone, done};
}

CopyOutcome CmaAccess::read(std::byte* local, const ExposedRange& range, uint64_t offset,
                            uint64_t bytes) noexcept {
  return copy(local, range.address + offset, bytes, false);
}

CopyOutcome CmaAccess::write(const std::byte* local, const ExposedRange& range, uint64_t offset,
                             uint64_t bytes) noexcept {
  return copy(const_cast<std::byte*>(local), range.address + offset, bytes, true);
}

}  // namespace bedplate
