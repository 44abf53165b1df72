// Files through the ring of a shard's sockets: one io_uring_enter submits requests of both, and one
// sleep waits for both.
//
// The files and the pool are registered with the ring, so an operation on memory of the pool takes
// no references to its file or its pages.
//
// Invariants: 1. An issued operation is of a registered file, and in flight for its owner (issue).
// 2. A completion has the tag (handle), and its operation is in flight (Files::handle). 3. The
// bytes that an entry moves lie within the operation, and have a key that fits the kernel's field
// (prepare_move). 4. The ring's thread unregisters the files, or the kernel refuses (close).
// Threads: the shard's, which is asserted.
#pragma once

#include <cstdint>
#include <vector>

#include <liburing.h>

#include "transport/files/files.h"
#include "transport/loop/event_loop.h"

namespace bedplate {

// Takes the next entry of the ring; submits first if the ring is full. The caller prepares the
// entry and sets its user_data. Each submission counts in `system_calls`.
io_uring_sqe& next_ring_entry(io_uring& ring, Counter& system_calls) noexcept;

// Prepares `entry` to move the next bytes of `operation`, a read or a write: at most 1 GiB, and not
// beyond the region (of `keys`) that holds its memory. A later entry moves the rest. The entry has
// the file's index; the caller sets IOSQE_FIXED_FILE and user_data.
void prepare_move(io_uring_sqe& entry, const KeyTable& keys,
                  const FileOperation& operation) noexcept;

class UringFiles final : public FileBackend {
 public:
  // `ring` is the sockets', and outlives this. An entry's user_data is the operation's address with
  // the bits of `tag`, all within `tag_mask`.
  UringFiles(io_uring& ring, uint64_t tag, uint64_t tag_mask) noexcept
      : ring_(ring), tag_(tag), tag_mask_(tag_mask) {}
  // `loop`: the sockets'. `system_calls` counts the ring's system calls. Both outlive this. Called
  // before open().
  void attach(const EventLoop& loop, Counter& system_calls) noexcept {
    loop_ = &loop;
    system_calls_ = &system_calls;
  }

  // Errors: the ring does not take as many files, or the limit of open files is too low.
  Result<void> open(Files& files, const KeyTable& keys, uint32_t operation_count_max) override;
  void issue(FileOperation& operation) noexcept override;
  // Drops completions of sockets and watches, because their loop has ended.
  bool wait(uint64_t deadline_ns) noexcept override;
  // Unregisters the files now; the kernel tears rings down long after they were closed.
  void close(bool leaves_operations) noexcept override;

  // Called by the sockets for a completion with the tag.
  void handle(uint64_t user_data, int32_t result) noexcept;

 private:
  io_uring& ring_;
  const uint64_t tag_;
  const uint64_t tag_mask_;
  const EventLoop* loop_ = nullptr;
  Counter* system_calls_ = nullptr;
  Files* files_ = nullptr;
  bool is_registered_ = false;
  const KeyTable* keys_ = nullptr;
  std::vector<uint8_t> would_wait_;  // by the file's index: 1 if the kernel may block on submission
};

}  // namespace bedplate
