// Turns the requests of clients into operations of one volume's store, on the volume's shard.
//
// Buffers. Data lie in planned memory, aligned as the store needs it. A read fills a buffer, and
// the socket sends from there. The socket receives a payload into a buffer, and the store writes
// from there. An unaligned request has a buffer for all its blocks, and its bytes lie within them.
// Bounds. Each task runs one operation at a time. Requests wait, in order, for a free task and for
// a buffer. A write whose payload has arrived has its buffer, and goes before them. Each volume has
// tasks and buffers of its own: a slow store holds up no other volume.
// Steps. A request is one operation, or several in a fixed order (StoreTask::Step): an unaligned
// write reads and writes back the blocks at its edges, under WriteOrder.
// Errors go to the client that asked. After a failed flush, or a write that fails only if it must
// be durable, the store may have lost any write: from then on each request that promises durability
// answers EIO, until the volume is opened anew.
//
// Invariants, which is_valid() checks: 1. Each task is free or has a request. 2. A request that has
// its buffer waits for a task only while no task is free. 3. A waiting request is in one of the two
// lists. 4. The order of writes and the buffers are valid.
// Threads: the volume's shard.
#pragma once

#include <cstdint>
#include <span>

#include "apps/blockd/block_request.h"
#include "apps/blockd/stores/buffer_arena_datapath.h"
#include "apps/blockd/stores/volume_store.h"
#include "apps/blockd/stores/write_order_datapath.h"
#include "apps/blockd/volume_counters.h"
#include "platform/free_list.h"
#include "platform/tail_queue.h"
#include "transport/loop/event_loop.h"

namespace bedplate {

// The sizes of a queue.
struct StoreQueueShape {
  uint64_t buffer_bytes = 64 * kMiB;
  uint32_t task_count = 64;  // concurrent operations of the store
};

class StoreQueue;

// A request that the store works on.
struct StoreTask {
  // In the order of execution; a request has some of them.
  enum class Step : uint8_t {
    kZero,       // zeroes or discards the whole blocks
    kReadHead,   // the block that the request begins in
    kWriteHead,  // writes that block back with zeros in it
    kReadTail,   // the block that the request ends in, if it is another one
    kWriteTail,
    kData,
    kExtents,
    kSync,
    kDone
  };

  OrderedWrite order;  // first: a task is found by its address
  StoreOperation operation;
  StoreQueue* queue = nullptr;
  BlockRequest* request = nullptr;
  StoreTask* next_free = nullptr;
  std::byte* scratch = nullptr;  // one block
  uint32_t steps = 0;            // bits of the remaining steps
  Step step = Step::kDone;       // in progress
  bool is_ordered = false;
  uint64_t zeroed_bytes = 0;     // zeroed by writing zeros
  bool has_failed_sync = false;  // its durable write failed; it is retried without durability
};

class StoreQueue {
 public:
  // The largest block of a store; tasks have memory for one.
  static constexpr uint32_t kBlockBytesMax = 4 * kKiB;
  static constexpr uint32_t kBlockBytesMin = 512;
  // The most parts of a range in one BLOCK_STATUS.
  static constexpr uint32_t kExtentCountMax = 128;
  // The largest request, with the blocks that it begins and ends in, fits into the buffers.
  static constexpr uint64_t kBufferBytesMin = nbd::kPayloadMaxBytes + 2 * kBlockBytesMax;

  // The bytes of memory for tasks, besides the buffers.
  static uint64_t bytes_for(const StoreQueueShape& shape) noexcept;

  // Before the seal: it allocates. Called once. Requires: `buffers` has shape.buffer_bytes, a
  // multiple of 4 KiB and at least kBufferBytesMin; `memory` has bytes_for(shape). Both are zeroed
  // and aligned to kBlockBytesMax. The store is not memory, and its blocks have kBlockBytesMin to
  // kBlockBytesMax. All arguments but `shape` outlive this.
  void create(VolumeStore& store, const StoreQueueShape& shape, std::span<std::byte> buffers,
              std::span<std::byte> memory, std::span<VolumeLanes> lanes, const EventLoop& loop,
              StoreCounters& counters) noexcept;

  // Takes a request from a lane. Sends it back by the lane of its home once it is done or granted,
  // or its payload is copied into a buffer (kStored).
  void take(BlockRequest& request) noexcept;

  bool is_valid() const noexcept;

 private:
  using Step = StoreTask::Step;
  using List = TailQueue<&BlockRequest::next>;
  // The position of a request among the store's blocks.
  struct Edges {
    uint64_t first;       // the start of its first block
    uint64_t last;        // the end of its last block
    uint64_t head_bytes;  // from the start of its first block to the request
    uint64_t tail_bytes;  // from the end of the request to the end of its last block
    // The range of blocks that the request covers wholly; empty if whole_end <= whole_begin.
    uint64_t whole_begin;
    uint64_t whole_end;
    // Whether the request lies within one block, and touches neither of the block's ends.
    bool is_one_block() const noexcept { return whole_end < whole_begin; }
  };

  void reply(BlockRequest& request) noexcept { lanes_[request.home].replies.push(request); }
  void pump() noexcept;
  BlockRequest& end_wait(List& list) noexcept;
  bool try_begin(BlockRequest& request) noexcept;
  bool try_grant(BlockRequest& request) noexcept;
  void answer_at_once(BlockRequest& request) noexcept;
  bool needs_buffer(const BlockRequest& request) const noexcept;
  std::byte* try_take_buffer(const BlockRequest& request) noexcept;
  void give_buffer(BlockRequest& request) noexcept;
  void begin_task(BlockRequest& request) noexcept;
  uint32_t steps_of(const BlockRequest& request) const noexcept;
  void go_on(StoreTask& task) noexcept;
  void begin_step(StoreTask& task) noexcept;
  void begin_zero(StoreTask& task) noexcept;
  static void completed(void* context, int64_t result) noexcept;
  void step_ended(StoreTask& task, int64_t result) noexcept;
  bool try_otherwise(StoreTask& task, int64_t result) noexcept;
  void merge_edge(StoreTask& task) noexcept;
  void end_extents(StoreTask& task, int64_t count) noexcept;
  void end_task(StoreTask& task, nbd::ErrorCode error) noexcept;
  Edges edges_of(const BlockRequest& request) const noexcept;
  uint64_t buffer_bytes_of(const BlockRequest& request) const noexcept;
  void set_levels() noexcept;

  VolumeStore* store_ = nullptr;
  VolumeLanes* lanes_ = nullptr;     // by BlockRequest::home
  const EventLoop* loop_ = nullptr;  // tells the time
  StoreCounters* counters_ = nullptr;
  BufferArena arena_;
  std::span<StoreTask> tasks_;
  std::span<std::byte> zeros_;
  FreeList<&StoreTask::next_free> free_;
  uint32_t free_count_ = 0;
  List committed_;              // writes that have their buffers and wait for a task
  List new_;                    // requests that wait for a task or for a buffer
  uint32_t waiting_count_ = 0;  // in both lists
  WriteOrder order_;
  bool has_failed_sync_ = false;
};

}  // namespace bedplate
