#include "transport/uring/uring_device.h"

#include <cerrno>

#include <sys/uio.h>

#include "platform/units.h"

namespace bedplate {

Result<void> UringDevice::register_regions(std::span<const Region> regions, std::span<Key> keys) {
  iovec buffers[kRegionCountMax];
  uint64_t bytes = 0;
  BP_ASSERT(regions.size() <= kRegionCountMax && keys.size() == regions.size());
  for (size_t i = 0; i < regions.size(); ++i) {
    buffers[i] = {regions[i].address, regions[i].bytes};
    keys[i] = static_cast<Key>(i);
    bytes += regions[i].bytes;
  }
  const int outcome =
      io_uring_register_buffers(&ring_, buffers, static_cast<unsigned>(regions.size()));
  if (outcome != 0) {
    errno = -outcome;
    return error_from_errno("registering %s of the pool with io_uring", format_bytes(bytes).text)
        .set_cure("raise the limit of locked memory (ulimit -l unlimited), or set [event_loop] "
                  "sockets = \"epoll\"");
  }
  return {};
}

}  // namespace bedplate
