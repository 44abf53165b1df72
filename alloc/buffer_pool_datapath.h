// BufferPool: a fixed number of buffers of one size in one carve of the pool.
//
// Each shard takes buffers from its own cache and gives them back to it; no other shard touches
// that cache. Full and empty caches exchange batches with one shared lock-free stack, so a buffer
// that one shard takes and another gives back costs one shared operation per batch. Buffers in a
// cache are unavailable to other shards: plan for them (kCacheMax).
//
// Invariants: 1. A buffer is taken, or in exactly one cache, or in exactly one batch of the stack;
// in debug its batch link says whether it is taken (check_taken, check_given_back). 2. Only the
// holder of a batch uses the chain through it; threads share only the batch links. 3. A cache has
// kCacheMax buffers at most, all of this pool, none of them taken: is_valid(shard) checks this. 4.
// A batch has kBatchMax buffers at most: refill() checks this.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "platform/cache_line.h"

namespace bedplate {

class BufferPool {
 public:
  // Each value is at least 1.
  struct Options {
    uint64_t buffer_bytes = 0;  // of each buffer; bytes_for() adds the alignment
    uint32_t buffer_count = 0;
    uint32_t shard_count = 1;                    // caches, numbered from 0
    uint64_t alignment_bytes = kCacheLineBytes;  // a power of two, at least a cache line
  };

  static constexpr uint32_t kBatchMax = 32;
  // The most buffers that one shard's cache may withhold from other shards.
  static constexpr uint32_t kCacheMax = 2 * kBatchMax;

  // The bytes to carve for `options`, bookkeeping included.
  static uint64_t bytes_for(const Options& options) noexcept;

  // Makes a pool in `memory`. Requires: `memory` is aligned to a cache line and has at least
  // bytes_for(options). Ownership: the pool lies in `memory` and lives as long as it; it is never
  // destroyed. Debug builds poison every buffer. Threads: one, before others use the pool.
  static BufferPool* create(std::span<std::byte> memory, const Options& options) noexcept;

  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Takes a buffer, with any content. Returns nullptr if the shard's cache and the stack are empty.
  // Ownership: the caller's, until give_back(). Threads: for each `shard` one at a time. Cost: a
  // few loads and stores of the shard's own memory; once per batch two or three atomic operations
  // on shared memory.
  std::byte* try_take(uint32_t shard) noexcept {
    BP_DCHECK(shard < options_.shard_count);
    BP_DCHECK_SLOW(is_valid(shard));
    Shard& own = shards_[shard];
    if (BP_UNLIKELY(own.cached_count == 0) && !refill(own)) return nullptr;
    std::byte* buffer = own.cached[--own.cached_count];
    count_one(own.taken_count);
#if BP_DEBUG
    check_taken(buffer);
#endif
    BP_DCHECK_SLOW(is_valid(shard));
    return buffer;
  }

  // Gives back a buffer. Requires: try_take of any shard returned it, and it was not given back
  // since: in debug a violation stops the process. Threads and cost: as try_take.
  void give_back(uint32_t shard, std::byte* buffer) noexcept {
    BP_DCHECK(shard < options_.shard_count);
    BP_DCHECK_SLOW(is_valid(shard));
    Shard& own = shards_[shard];
#if BP_DEBUG
    check_given_back(buffer);
#endif
    if (BP_UNLIKELY(own.cached_count == kCacheMax)) flush(own);
    own.cached[own.cached_count++] = buffer;
    count_one(own.given_count);
    BP_DCHECK_SLOW(is_valid(shard));
  }

  // Whether invariant 3 holds for the cache of `shard`. Threads: as try_take.
  bool is_valid(uint32_t shard) const noexcept;

  // The number of buffers in use, those in caches not included. A snapshot. Threads: any.
  uint32_t in_use_count() const noexcept;
  // The most buffers that were ever outside the stack at once: in use or in caches. Threads: any.
  uint32_t drawn_high_water_count() const noexcept {
    return drawn_high_water_count_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr uint32_t kTaken = kNone - 1;  // a batch link, in debug: the buffer is taken

  struct alignas(kCacheLineBytes) Shard {
    uint32_t cached_count = 0;
    std::atomic<uint64_t> taken_count{0};
    std::atomic<uint64_t> given_count{0};
    std::byte* cached[kCacheMax] = {};
  };

  explicit BufferPool(const Options& options) noexcept : options_(options) {}

  // A counter has one writer, so this needs no read-modify-write. Release: pairs with in_use_count.
  static void count_one(std::atomic<uint64_t>& counter) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  bool is_a_buffer(const std::byte* buffer) const noexcept;
  uint32_t index_of(const std::byte* buffer) const noexcept;
  std::byte* buffer_at(uint32_t index) const noexcept { return buffers_ + index * stride_bytes_; }
  void push_batch(uint32_t first) noexcept;
  uint32_t pop_batch() noexcept;
  bool refill(Shard& own) noexcept;
  void flush(Shard& own) noexcept;
  void check_taken(std::byte* buffer) noexcept;
  void check_given_back(std::byte* buffer) noexcept;

  const Options options_;
  uint64_t stride_bytes_ = 0;
  Shard* shards_ = nullptr;
  uint32_t* chain_ = nullptr;                    // by buffer: the next in its batch
  std::atomic<uint32_t>* batch_link_ = nullptr;  // by first buffer: the next batch in the stack
  std::byte* buffers_ = nullptr;
  // Low half: the first buffer of the top batch; high half: a version, against ABA.
  alignas(kCacheLineBytes) std::atomic<uint64_t> top_{kNone};
  std::atomic<uint32_t> drawn_count_{0};
  std::atomic<uint32_t> drawn_high_water_count_{0};
};

}  // namespace bedplate
