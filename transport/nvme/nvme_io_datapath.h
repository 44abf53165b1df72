// Operations on the namespaces of a controller: reads, writes and the rest, of any length.
//
// An operation becomes as many commands as the controller's limits ask for; operations that find no
// room in the queue wait, in order. Its memory is the pool's, and nothing is copied. While the
// controller is not open (it is being reset, or is gone) all operations are answered EIO.
//
// Invariants, which is_valid() looks at: 1. Operations wait only while it is open, and have blocks
// left. 2. Only the first waiting one may have begun. 3. An operation in the list of ended ones has
// no command under way. And begin(): 4. An operation is begun again once it has ended. Threads: one
// at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "platform/counter.h"
#include "platform/tail_queue.h"
#include "transport/nvme/nvme_queue_datapath.h"

namespace bedplate {

// A namespace that is used, as the controller has identified it.
struct NvmeNamespace {
  uint32_t id = 0;
  uint32_t block_log2 = 0;
  uint32_t transfer_blocks_max = 0;  // of one command
  uint32_t zero_blocks_max = 0;      // 0: it cannot write zeroes by itself
  bool can_deallocate = false;
  std::atomic<uint64_t> block_count = 0;  // it only grows; threads: any
};

enum class NvmeAction : uint8_t { kRead, kWrite, kFlush, kWriteZeroes, kDeallocate };

class NvmeIo;

// The caller fills the first part, and keeps it and its memory untouched until `completed`.
struct NvmeOperation : NvmeCall {
  NvmeAction action = NvmeAction::kRead;
  bool is_durable = false;       // kWrite: past the volatile cache
  bool gives_room_back = false;  // kWriteZeroes: the blocks may be deallocated
  const NvmeNamespace* space = nullptr;
  std::byte* memory = nullptr;  // kRead, kWrite: of the pool, aligned to 4 bytes
  uint64_t first_block = 0;     // all but kFlush
  uint64_t block_count = 0;     // over 0
  // Never from within begin(). `error`: 0 or an errno value; EOPNOTSUPP: it cannot do this.
  void (*done)(void* context, int error) noexcept = nullptr;
  void* context = nullptr;

  NvmeIo* io = nullptr;  // its own, as is what follows
  uint64_t blocks_left = 0;
  uint32_t command_count = 0;  // under way
  int error = 0;
  NvmeOperation* next = nullptr;
};

// The errno value for a status, for those who asked; 0: success.
int errno_of_status(uint16_t status) noexcept;

class NvmeIo {
 public:
  NvmeQueue& queue() noexcept { return queue_; }
  const NvmeQueue& queue() const noexcept { return queue_; }

  void open() noexcept { is_open_ = true; }
  // From now on all is answered EIO; commands under way end as the queue says (fail_all()).
  void close() noexcept;
  bool is_open() const noexcept { return is_open_; }

  // Requires: the range is the namespace's.
  void begin(NvmeOperation& operation, uint64_t now_ns) noexcept;
  // Ends commands that have completed, at most about `budget`, and begins waiting ones. Returns how
  // many.
  uint32_t poll(uint32_t budget, uint64_t now_ns) noexcept;

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
  TailQueue<&NvmeOperation::next> ended_;    // are told with the next poll
  bool is_open_ = false;
  uint64_t error_count_ = 0;
  uint64_t command_count_ = 0;
};

}  // namespace bedplate
