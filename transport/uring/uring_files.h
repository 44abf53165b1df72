// Files through the ring of a shard's sockets: what files ask for goes with the same
// io_uring_enter, and wakes the same sleep.
//
// The files are registered with the ring, and so is the pool: an operation on memory of the pool
// takes no references to its file or its pages.
//
// Invariants: 1. What is issued is of a file that is registered, and in flight for its owner
// (issue). 2. What comes has the tag (handle), and is in flight (Files::handle). 3. What an entry
// moves lies within the operation, and has a key that the kernel has a place for (prepare_move). 4.
// The files are let go of by the ring's thread, or the kernel refuses (close).
// Threads: the shard's, which is asserted.
#pragma once

#include <cstdint>
#include <vector>

#include <liburing.h>

#include "transport/event_loop.h"
#include "transport/files.h"

namespace bedplate {

// Takes the next entry of the ring; where that is full, its entries are submitted first. The caller
// prepares the entry and sets its user_data. Each submission counts in `system_calls`.
io_uring_sqe& next_ring_entry(io_uring& ring, Counter& system_calls) noexcept;

// Makes `entry` what is left of `operation`, a read or a write, up to the end of the region (of
// `keys`) that holds its memory; the rest goes with another entry. The file is meant by its index;
// the caller sets the flag and user_data.
void prepare_move(io_uring_sqe& entry, const KeyTable& keys,
                  const FileOperation& operation) noexcept;

class UringFiles final : public FileBackend {
 public:
  // `ring`, which outlives this, is the sockets'. `tag`: what stands beside the operation in its
  // user_data, within `tag_mask`.
  UringFiles(io_uring& ring, uint64_t tag, uint64_t tag_mask) noexcept
      : ring_(ring), tag_(tag), tag_mask_(tag_mask) {}
  // `loop`: the sockets'. `system_calls`: where calls of the kernel are counted. Both outlive this.
  // Before open().
  void attach(const EventLoop& loop, Counter& system_calls) noexcept {
    loop_ = &loop;
    system_calls_ = &system_calls;
  }

  // Errors: as many files are more than the ring takes, or the limit of open files is too low.
  Result<void> open(Files& files, const KeyTable& keys, uint32_t operation_count_max) override;
  void issue(FileOperation& operation) noexcept override;
  // What completes meanwhile of sockets and watches is dropped: their loop has ended.
  bool wait(uint64_t deadline_ns) noexcept override;
  // Lets go of the files now; the kernel takes rings down long after they were closed.
  void close(bool leaves_operations) noexcept override;

  // The sockets': a completion with the tag.
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
  std::vector<uint8_t> would_wait_;  // by the file's index: a read or write within the submission
};

}  // namespace bedplate
