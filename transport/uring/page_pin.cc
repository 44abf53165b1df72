#include "transport/uring/page_pin.h"

#include <cerrno>

namespace bedplate {

PagePin::~PagePin() {
  if (!is_created_) return;
  keys_.destroy();
  io_uring_queue_exit(&ring_);
}

Result<void> PagePin::create(PinnedPool& pool) {
  BP_ASSERT(!is_created_);
  if (const int outcome = io_uring_queue_init(1, &ring_, 0); outcome != 0) {
    errno = -outcome;
    return error_from_errno("setting up a ring that holds the pool's pages");
  }
  is_created_ = true;
  BP_TRY(hold_quiet_pipe(ring_));
  return keys_.create(pool, device_);
}

}  // namespace bedplate
