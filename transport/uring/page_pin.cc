#include "transport/uring/page_pin.h"

#include <cerrno>

#include "transport/uring/uring_device.h"

namespace bedplate {

PagePin::~PagePin() {
  if (!is_created_) return;
  io_uring_unregister_buffers(&ring_);  // at once; the ring's own end takes its time
  io_uring_queue_exit(&ring_);
}

Result<void> PagePin::create(PinnedPool& pool) {
  BP_ASSERT(!is_created_);
  if (const int outcome = io_uring_queue_init(1, &ring_, 0); outcome != 0) {
    errno = -outcome;
    return error_from_errno("setting up a ring that holds the pool's pages");
  }
  is_created_ = true;
  UringDevice device(ring_);
  return keys_.create(pool, device);
}

}  // namespace bedplate
