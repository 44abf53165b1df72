// io_uring as a device: its fixed buffers are the registration of the pool.
//
// A ring with registered buffers need not pin and unpin their pages for each operation. A key is
// the index of the buffer.
//
// Invariants: 1. A ring has at most one registration, or the kernel refuses. The ring's own thread
// removes the registration before the ring is destroyed. (deregister_regions, ~UringDevice) 2. A
// key fits into the kernel's 16 bits. (static_assert)
#pragma once

#include <liburing.h>

#include "transport/registration.h"

namespace bedplate {

// Checks that `ring`, just set up, is usable: a seccomp profile may allow io_uring_setup alone.
// Errors: the forbidden call. Threads: for a ring with a single issuer, only that thread.
Result<void> try_ring(const io_uring& ring) noexcept;

// In a process that joined a pool: makes `ring` hold the process's quiet pipe open
// (pinned_pool/join/joined_pool.h), so that the pool's owner waits until the ring is torn down
// before it gives the process's memory to another. Called for every ring, right after its set-up.
// The pipe takes the ring's table of files, so the kernel then refuses to register other files
// (EBUSY). Does nothing in other processes. Errors: the limit of open files is too low.
Result<void> hold_quiet_pipe(io_uring& ring) noexcept;

// The kernel's limits (io_uring/rsrc.c): 1 GiB for a buffer, 16384 buffers for a ring (1024 before
// Linux 5.13).
inline constexpr DeviceKind kUringKind = {.name = "io_uring",
                                          .instead = "set [event_loop] sockets = \"epoll\"",
                                          .holds_pages = true,
                                          .region_bytes_max = kGiB,
                                          .region_count_max = 16384};

// The same limits, for a ring for polled files; no other backend can replace it.
inline constexpr DeviceKind kPolledUringKind = {.name = "io_uring",
                                                .instead = "leave \"polled\" out",
                                                .holds_pages = true,
                                                .region_bytes_max = kGiB,
                                                .region_count_max = 16384};

static_assert(kUringKind.region_count_max - 1 <= UINT16_MAX &&
                  kPolledUringKind.region_count_max - 1 <= UINT16_MAX,
              "the kernel has 16 bits for a buffer's index");

class UringDevice final : public Device {
 public:
  // `ring` and `kind` outlive the device. Threads: for a ring with a single issuer, only that
  // thread.
  explicit UringDevice(io_uring& ring, const DeviceKind& kind = kUringKind) noexcept
      : ring_(ring), kind_(kind) {}
  // Requires: its registration was removed while the ring existed.
  ~UringDevice() override { BP_ASSERT(!is_registered_); }

  const DeviceKind& kind() const noexcept override { return kind_; }
  Result<void> register_regions(std::span<Region> regions) override;
  void deregister_regions(std::span<const Region> regions) noexcept override;

 private:
  io_uring& ring_;
  const DeviceKind& kind_;
  bool is_registered_ = false;
};

}  // namespace bedplate
