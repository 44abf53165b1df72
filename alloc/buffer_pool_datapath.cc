#include "alloc/buffer_pool_datapath.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "platform/units.h"

namespace bedplate {
namespace {

constexpr int kPoison = 0xdb;

}  // namespace

uint64_t BufferPool::bytes_for(const Options& options) noexcept {
  BP_ASSERT(options.buffer_bytes > 0);
  BP_ASSERT(options.buffer_count > 0 && options.buffer_count < kTaken);
  BP_ASSERT(options.shard_count > 0);
  BP_ASSERT(is_power_of_two(options.alignment_bytes) && options.alignment_bytes >= kCacheLineBytes);
  const uint64_t links =
      align_up(uint64_t{options.buffer_count} * 2 * sizeof(uint32_t), kCacheLineBytes);
  const uint64_t stride = align_up(options.buffer_bytes, options.alignment_bytes);
  // The carve is only aligned to a cache line: larger alignment of the buffers may need a gap.
  return sizeof(BufferPool) + options.shard_count * sizeof(Shard) + links +
         (options.alignment_bytes - kCacheLineBytes) + stride * options.buffer_count;
}

BufferPool* BufferPool::create(std::span<std::byte> memory, const Options& options) noexcept {
  BP_ASSERT(memory.size() >= bytes_for(options));
  BP_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % kCacheLineBytes == 0);
  auto* pool = ::new (static_cast<void*>(memory.data())) BufferPool(options);
  std::byte* next = memory.data() + sizeof(BufferPool);
  pool->shards_ = reinterpret_cast<Shard*>(next);
  for (uint32_t i = 0; i < options.shard_count; ++i, next += sizeof(Shard)) {
    ::new (static_cast<void*>(next)) Shard;
  }
  const uint32_t count = options.buffer_count;
  pool->chain_ = reinterpret_cast<uint32_t*>(next);
  next += count * sizeof(uint32_t);
  pool->batch_link_ = reinterpret_cast<std::atomic<uint32_t>*>(next);
  next += count * sizeof(uint32_t);
  pool->buffers_ = reinterpret_cast<std::byte*>(
      align_up(reinterpret_cast<uintptr_t>(next), options.alignment_bytes));
  pool->stride_bytes_ = align_up(options.buffer_bytes, options.alignment_bytes);
  for (uint32_t i = 0; i < count; ++i) {
    ::new (static_cast<void*>(&pool->batch_link_[i])) std::atomic<uint32_t>(kNone);
    const bool is_last = (i + 1) % kBatchMax == 0 || i + 1 == count;
    pool->chain_[i] = is_last ? kNone : i + 1;
    if (BP_DEBUG) std::memset(pool->buffer_at(i), kPoison, options.buffer_bytes);
  }
  for (uint32_t i = 0; i < count; i += kBatchMax) pool->push_batch(i);
  return pool;
}

uint32_t BufferPool::in_use_count() const noexcept {
  // Sums the gives before the takes: each counted give then has its take counted, so the difference
  // is not negative.
  uint64_t given = 0;
  uint64_t taken = 0;
  for (uint32_t i = 0; i < options_.shard_count; ++i) {
    given += shards_[i].given_count.load(std::memory_order_acquire);
  }
  for (uint32_t i = 0; i < options_.shard_count; ++i) {
    taken += shards_[i].taken_count.load(std::memory_order_acquire);
  }
  return static_cast<uint32_t>(std::min<uint64_t>(taken - given, options_.buffer_count));
}

bool BufferPool::is_a_buffer(const std::byte* buffer) const noexcept {
  return buffer >= buffers_ && index_of(buffer) < options_.buffer_count &&
         buffer == buffer_at(index_of(buffer));
}

bool BufferPool::is_valid(uint32_t shard) const noexcept {
  const Shard& own = shards_[shard];
  if (own.cached_count > kCacheMax) return false;
  for (uint32_t i = 0; i < own.cached_count; ++i) {
    if (!is_a_buffer(own.cached[i])) return false;
    const uint32_t link = batch_link_[index_of(own.cached[i])].load(std::memory_order_relaxed);
    if (BP_DEBUG && link == kTaken) return false;
  }
  return true;
}

uint32_t BufferPool::index_of(const std::byte* buffer) const noexcept {
  return static_cast<uint32_t>(static_cast<uint64_t>(buffer - buffers_) / stride_bytes_);
}

void BufferPool::push_batch(uint32_t first) noexcept {
  BP_DCHECK(first < options_.buffer_count);
  uint64_t top = top_.load(std::memory_order_relaxed);
  uint64_t wanted;
  do {
    batch_link_[first].store(static_cast<uint32_t>(top), std::memory_order_relaxed);
    wanted = ((top >> 32) + 1) << 32 | first;
    // Release: the chain and the link are visible to the thread that pops the batch.
  } while (!top_.compare_exchange_weak(top, wanted, std::memory_order_release,
                                       std::memory_order_relaxed));
}

uint32_t BufferPool::pop_batch() noexcept {
  uint64_t top = top_.load(std::memory_order_acquire);
  for (;;) {
    const auto first = static_cast<uint32_t>(top);
    if (first == kNone) return kNone;
    // May be stale if another thread popped the batch meanwhile: then the exchange fails.
    const uint32_t next = batch_link_[first].load(std::memory_order_relaxed);
    const uint64_t wanted = ((top >> 32) + 1) << 32 | next;
    if (top_.compare_exchange_weak(top, wanted, std::memory_order_acquire,
                                   std::memory_order_acquire)) {
      return first;
    }
  }
}

bool BufferPool::refill(Shard& own) noexcept {
  const uint32_t first = pop_batch();
  if (first == kNone) return false;
  BP_DCHECK(own.cached_count == 0);
  for (uint32_t i = first; i != kNone; i = chain_[i]) {
    BP_DCHECK(i < options_.buffer_count && own.cached_count < kBatchMax);
    own.cached[own.cached_count++] = buffer_at(i);
  }
  const uint32_t drawn =
      drawn_count_.fetch_add(own.cached_count, std::memory_order_relaxed) + own.cached_count;
  uint32_t high = drawn_high_water_count_.load(std::memory_order_relaxed);
  while (drawn > high &&
         !drawn_high_water_count_.compare_exchange_weak(high, drawn, std::memory_order_relaxed)) {
  }
  return true;
}

// Pushes the older half to the stack; the younger half is warm and stays.
void BufferPool::flush(Shard& own) noexcept {
  BP_DCHECK(own.cached_count == kCacheMax);
  uint32_t first = kNone;
  for (uint32_t i = 0; i < kBatchMax; ++i) {
    const uint32_t index = index_of(own.cached[i]);
    chain_[index] = first;
    first = index;
  }
  std::copy(own.cached + kBatchMax, own.cached + kCacheMax, own.cached);
  own.cached_count -= kBatchMax;
  // Before the push: the thread that pops the batch adds it again, so the sum never exceeds the
  // number of buffers.
  drawn_count_.fetch_sub(kBatchMax, std::memory_order_relaxed);
  push_batch(first);
}

void BufferPool::check_taken(std::byte* buffer) noexcept {
  const uint32_t was = batch_link_[index_of(buffer)].exchange(kTaken, std::memory_order_relaxed);
  BP_ASSERT(was != kTaken);
  const auto* bytes = reinterpret_cast<const unsigned char*>(buffer);
  const bool is_poison_whole = std::all_of(bytes, bytes + options_.buffer_bytes,
                                           [](unsigned char byte) { return byte == kPoison; });
  BP_ASSERT(is_poison_whole);  // else the buffer was written after give_back()
}

void BufferPool::check_given_back(std::byte* buffer) noexcept {
  BP_ASSERT(is_a_buffer(buffer));
  const uint32_t was = batch_link_[index_of(buffer)].exchange(kNone, std::memory_order_relaxed);
  const bool is_given_back_twice = was != kTaken;
  BP_ASSERT(!is_given_back_twice);
  std::memset(buffer, kPoison, options_.buffer_bytes);
}

}  // namespace bedplate
