// io_uring as a device: its fixed buffers are the registration of the pool.
//
// A ring that knows its buffers beforehand does not take and return references to their pages for
// each operation. A key is the index of the buffer.
#pragma once

#include <liburing.h>

#include "transport/registration.h"

namespace bedplate {

class UringDevice final : public Device {
 public:
  // `ring` outlives the device.
  explicit UringDevice(io_uring& ring) noexcept : ring_(ring) {}

  const char* name() const noexcept override { return "io_uring"; }
  bool holds_pages() const noexcept override { return true; }
  Result<void> register_regions(std::span<const Region> regions, std::span<Key> keys) override;

 private:
  io_uring& ring_;
};

}  // namespace bedplate
