// A ring without traffic: its registration pins every page of the pool.
//
// Locked pages of 4 KiB cannot be dropped, but the kernel moves them when it compacts memory, and
// move_pages(2) and its like move pages of any size. Pages that a device holds do not move. An
// appliance with sockets through io_uring, or with verbs, holds its pages anyway. PagePin is for
// all others. It holds the pages until it is destroyed.
#pragma once

#include "transport/uring/uring_device.h"

namespace bedplate {

// The limits of kUringKind, for a ring without sockets: nothing can replace it.
inline constexpr DeviceKind kPagePinKind = {.name = kUringKind.name,
                                            .holds_pages = true,
                                            .region_bytes_max = kUringKind.region_bytes_max,
                                            .region_count_max = kUringKind.region_count_max};

class PagePin {
 public:
  PagePin() noexcept = default;
  PagePin(const PagePin&) = delete;
  PagePin& operator=(const PagePin&) = delete;
  ~PagePin();

  // Requires: the pool is reserved, not sealed; called once. Errors: io_uring is not allowed here,
  // or the limit of locked memory is too low; then it holds no pages.
  Result<void> create(PinnedPool& pool);

 private:
  io_uring ring_ = {};
  bool is_created_ = false;
  UringDevice device_{ring_, kPagePinKind};
  KeyTable keys_;
};

}  // namespace bedplate
