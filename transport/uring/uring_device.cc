#include "transport/uring/uring_device.h"

#include <cerrno>
#include <vector>

#include <sys/syscall.h>
#include <sys/uio.h>

#include "pinned_pool/join/joined_pool.h"
#include "platform/forbidden_calls.h"
#include "platform/units.h"

namespace bedplate {

// Submits an operation that does not exist: a working ring answers EINVAL.
Result<void> try_ring(const io_uring& ring) noexcept {
  constexpr unsigned long kNoOperation = 0x7fffffff;
  const auto fd = static_cast<unsigned long>(ring.ring_fd);
  const CallTrial trials[] = {{"io_uring_enter", SYS_io_uring_enter, {fd}},
                              {"io_uring_register", SYS_io_uring_register, {fd, kNoOperation}}};
  return try_calls(trials);
}

Result<void> hold_quiet_pipe(io_uring& ring) noexcept {
  const int fd = quiet_fd();
  if (fd < 0) return {};
  const int outcome = io_uring_register_files(&ring, &fd, 1);
  if (outcome == 0) return {};
  errno = -outcome;
  return error_from_errno("registering the quiet pipe with io_uring")
      .set_cure("raise the limit of open files (ulimit -n)");
}

Result<void> UringDevice::register_regions(std::span<Region> regions) {
  std::vector<iovec> buffers;
  uint64_t bytes = 0;
  for (Region& region : regions) {
    region.key = buffers.size();
    buffers.push_back({region.address, region.bytes});
    bytes += region.bytes;
  }
  const int outcome =
      io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size()));
  if (outcome != 0) {
    errno = -outcome;
    const char* or_instead = kind_.instead[0] == '\0' ? "" : ", or ";
    return error_from_errno("registering %s of the pool with io_uring", format_bytes(bytes).text)
        .set_cure("raise the limit of locked memory (ulimit -l unlimited)%s%s", or_instead,
                  kind_.instead);
  }
  is_registered_ = true;
  return {};
}

// Gives the pages back now: the kernel tears rings down long after they were closed.
void UringDevice::deregister_regions(std::span<const Region>) noexcept {
  BP_ASSERT(is_registered_);
  const int outcome = io_uring_unregister_buffers(&ring_);
  BP_ASSERT(outcome == 0);  // fails if the ring was closed before, or belongs to another thread
  is_registered_ = false;
}

}  // namespace bedplate
