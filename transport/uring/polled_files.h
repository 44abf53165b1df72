// Reads and writes of files through a ring of their own that polls for completions
// (IORING_SETUP_IOPOLL): the drive raises no interrupt, and nobody is woken.
//
// Such a ring takes only reads and writes past the page cache, of files whose drive has queues for
// polling (transport/files/polled_limits.h); Files gives everything else to the ordinary backend.
// While an operation is in flight the shard polls in each round and does not sleep; otherwise a
// round costs a comparison.
//
// Invariants, which is_valid() looks at around each change: 1. Files are registered only with an
// existing ring, and operations are in flight only while files are registered. 2. No more
// operations are in flight than create() was told, for which the ring has completions. Threads: the
// shard's, which is asserted.
#pragma once

#include <cstdint>

#include <liburing.h>

#include "transport/files/files.h"
#include "transport/loop/event_loop.h"
#include "transport/uring/uring_device.h"

namespace bedplate {

class PolledFiles final : public FileBackend, public PollSource {
 public:
  PolledFiles() noexcept = default;
  PolledFiles(const PolledFiles&) = delete;
  PolledFiles& operator=(const PolledFiles&) = delete;
  ~PolledFiles() override { destroy(); }

  // Sets the ring up and registers the pool with it. `system_calls` counts the ring's system calls;
  // `system_calls` and `loop`, the shard's, outlive this. Before the seal, on the shard's thread.
  // Requires: called once; operation_count_max > 0. Errors: io_uring or such a ring is not allowed
  // here, or the limit of locked memory is too low; then it cannot be opened.
  Result<void> create(const EventLoop& loop, PinnedPool& pool, uint32_t operation_count_max,
                      Counter& system_calls);
  // Deregisters the pool and ends the ring. Does nothing without create(). On the shard's thread.
  // Requires: closed, if it was opened; nothing is in flight.
  void destroy() noexcept;

  // Ignores the keys, which are of another ring. Requires: created, with at least as many
  // operations. Errors: the limit of open files is too low.
  Result<void> open(Files& files, const KeyTable&, uint32_t operation_count_max) override;
  // Requires: a read or a write within the file's limits that is not durable.
  void issue(FileOperation& operation) noexcept override;
  bool wait(uint64_t deadline_ns) noexcept override;
  void close(bool leaves_operations) noexcept override;

  // Polls for completions. Operations in flight count as work, so that the loop keeps polling.
  uint32_t poll(uint32_t budget) noexcept override;

  bool is_valid() const noexcept;

 private:
  uint32_t reap(uint32_t budget) noexcept;

  io_uring ring_ = {};
  bool is_created_ = false;
  bool is_registered_ = false;
  UringDevice device_{ring_, kPolledUringKind};
  KeyTable keys_;
  const EventLoop* loop_ = nullptr;
  Counter* system_calls_ = nullptr;
  Files* files_ = nullptr;
  uint32_t operation_count_max_ = 0;
  uint32_t in_flight_count_ = 0;
};

}  // namespace bedplate
