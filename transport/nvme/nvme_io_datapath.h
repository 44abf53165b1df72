// Operations on the namespaces of a controller: reads, writes and others, of any length.
//
// An operation becomes as many commands as the controller's limits demand. Operations wait in order
// while the queue is full. Their memory is the pool's, and nothing is copied. While NvmeIo is not
// open (the controller is being reset, or is gone) all operations answer EIO.
//
// Invariants, checked by is_valid(): 1. Operations wait only while NvmeIo is open, and have blocks
// left. 2. Only the first waiting operation may have commands begun. 3. An operation in the list of
// ended ones has no command under way. Checked by begin(): 4. An operation begins again only after
// it has ended.
// Threads: one at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "platform/counter.h"
#include "platform/tail_queue.h"
#include "transport/nvme/nvme_queue_datapath.h"

namespace bedplate {

// A namespace in use, as the controller has identified it.
struct NvmeNamespace {
  uint32_t id = 0;
  uint32_t block_log2 = 0;
  uint32_t transfer_blocks_max = 0;  // of one command
  uint32_t zero_blocks_max = 0;      // 0: the controller cannot write zeroes
  bool can_deallocate = false;
  std::atomic<uint64_t> block_count = 0;  // only grows; threads: any
};

enum class NvmeAction : uint8_t { kRead, kWrite, kFlush, kWriteZeroes, kDeallocate };

class NvmeIo;

// The caller fills the first part, and leaves it and its memory unchanged until `done`.
struct NvmeOperation : NvmeCall {
  NvmeAction action = NvmeAction::kRead;
  bool is_durable = false;       // kWrite: past the volatile cache
  bool gives_room_back = false;  // kWriteZeroes: the blocks may be deallocated
  const NvmeNamespace* space = nullptr;
  std::byte* memory = nullptr;  // kRead, kWrite: of the pool, aligned to 4 bytes
  uint64_t first_block = 0;     // all but kFlush
  uint64_t block_count = 0;     // over 0; kFlush: NvmeIo sets it
  // Called once, at the end of the operation, and never from begin(). It may begin operations, this
  // one, too. `error`: 0 or an errno value; EOPNOTSUPP: the drive lacks the command.
  void (*done)(void* context, int error) noexcept = nullptr;
  void* context = nullptr;

  NvmeIo* io = nullptr;  // NvmeIo's, as are the following members
  uint64_t blocks_left = 0;
  uint32_t command_count = 0;  // in flight
  int error = 0;
  NvmeOperation* next = nullptr;
};

// Returns the errno value that an operation with this status ends with; 0: success.
int errno_of_status(uint16_t status) noexcept;

class NvmeIo {
 public:
  NvmeQueue& queue() noexcept { return queue_; }
  const NvmeQueue& queue() const noexcept { return queue_; }

  void open() noexcept { is_open_ = true; }
  // From now on new and waiting operations answer EIO. Commands under way end by their completion,
  // or by NvmeQueue::fail_all().
  void close() noexcept;
  bool is_open() const noexcept { return is_open_; }

  // Begins the operation's commands, or lets it wait. The next poll() submits them. Requires: the
  // range is within the namespace.
  void begin(NvmeOperation& operation, uint64_t now_ns) noexcept;
  // Ends completed commands, at most about `budget`, begins waiting operations, and submits all
  // begun commands. Returns the number of commands, and of operations without a command, that have
  // ended.
  uint32_t poll(uint32_t budget, uint64_t now_ns) noexcept;

  // Counts of commands: those that failed or got no answer, and all that were begun.
  uint64_t error_count() const noexcept { return error_count_; }
  uint64_t command_count() const noexcept { return command_count_; }
  bool is_valid() const noexcept;

 private:
  bool issue(NvmeOperation& operation, uint64_t now_ns) noexcept;
  static void fill(NvmeOperation& operation, const NvmeQueue::Entry& entry) noexcept;
  static void completed(NvmeCall& call, uint16_t status, uint32_t result) noexcept;
  void command_ended(NvmeOperation& operation, uint16_t status) noexcept;
  void end_later(NvmeOperation& operation, int error) noexcept;

  NvmeQueue queue_;
  TailQueue<&NvmeOperation::next> waiting_;  // have blocks left
  TailQueue<&NvmeOperation::next> ended_;    // done() is called in the next poll
  bool is_open_ = false;
  uint64_t error_count_ = 0;
  uint64_t command_count_ = 0;
};

}  // namespace bedplate
