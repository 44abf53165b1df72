// A lane: the bounded single-producer, single-consumer FIFO that shards hand pointers through.
//
// Head and tail lie on cache lines of their own, and each end keeps a private copy of the other's
// index, so that in steady state a push or pop touches one shared line: that of the item. The
// indices only grow; the slot is the index modulo the capacity, a power of two.
//
// Invariants: 1. tail <= head <= tail + capacity. 2. Slots [tail, head) belong to the consumer, the
// others to the producer. 3. Only the producer writes head, only the consumer writes tail. 4. What
// an end knows of the other's index is no more than that is. Each end looks at 1 and 4 by its
// is_valid_for_...(); 2 and 3 are what its functions are for, and who may call them.
//
// It lies in memory that the caller carved; nothing here allocates, blocks or wakes anybody.
// Threads: one producer and one consumer at a time. The memory is private to one process: the
// consumer believes what it reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>

#include "platform/assert.h"
#include "platform/cache_line.h"
#include "platform/units.h"

namespace bedplate {

template <typename Item>
class SpscFifo {
  static_assert(std::is_trivially_copyable_v<Item>);

 public:
  // How much memory a FIFO of `capacity` items needs: a multiple of the cache line.
  // Requires: capacity is a power of two.
  static constexpr uint64_t bytes_for(uint64_t capacity) noexcept {
    return align_up(sizeof(SpscFifo) + capacity * sizeof(Item), kCacheLineBytes);
  }

  // Builds an empty FIFO in `memory`. Ownership: the caller keeps the memory, for as long as
  // either end is used. Requires: memory.size() == bytes_for(capacity), cache-line aligned.
  static SpscFifo* create(std::span<std::byte> memory, uint64_t capacity) noexcept {
    BP_ASSERT(is_power_of_two(capacity));
    BP_ASSERT(memory.size() == bytes_for(capacity));
    BP_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % kCacheLineBytes == 0);
    return new (memory.data()) SpscFifo(capacity);
  }

  // Producer. Returns false when full. Cost: one store to the item's line and one to the head's.
  bool try_push(Item item) noexcept {
    BP_DCHECK(is_valid_for_producer());
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (BP_UNLIKELY(head - producer_tail_ > mask_)) {
      producer_tail_ = tail_.load(std::memory_order_acquire);  // pairs with the consumer's release
      if (head - producer_tail_ > mask_) return false;
    }
    *slot(head) = item;
    head_.store(head + 1, std::memory_order_release);  // publishes the item
    BP_DCHECK(is_valid_for_producer());
    return true;
  }

  // Producer. Pushes as many of `items` as there is room for, in order; returns how many.
  size_t push_batch(std::span<const Item> items) noexcept {
    BP_DCHECK(is_valid_for_producer());
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (head + items.size() - producer_tail_ > capacity()) {
      producer_tail_ = tail_.load(std::memory_order_acquire);
    }
    const uint64_t room = capacity() - (head - producer_tail_);
    const size_t count = room < items.size() ? static_cast<size_t>(room) : items.size();
    for (size_t i = 0; i < count; ++i) *slot(head + i) = items[i];
    if (count > 0) head_.store(head + count, std::memory_order_release);  // publishes them all
    BP_DCHECK(is_valid_for_producer());
    return count;
  }

  // Consumer. Returns false when empty.
  bool try_pop(Item* item) noexcept {
    BP_DCHECK(is_valid_for_consumer());
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (consumer_head_ == tail) {
      consumer_head_ = head_.load(std::memory_order_acquire);  // pairs with the producer's release
      if (consumer_head_ == tail) return false;
    }
    *item = *slot(tail);
    tail_.store(tail + 1, std::memory_order_release);  // frees the slot
    BP_DCHECK(is_valid_for_consumer());
    return true;
  }

  // Consumer. Takes at most out.size() items; returns how many: perhaps fewer than there are, but
  // 0 only when it is empty.
  size_t pop_batch(std::span<Item> out) noexcept {
    BP_DCHECK(is_valid_for_consumer());
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (consumer_head_ == tail) {
      consumer_head_ = head_.load(std::memory_order_acquire);  // pairs with the producer's release
    }
    const uint64_t ready = consumer_head_ - tail;
    const size_t count = ready < out.size() ? static_cast<size_t>(ready) : out.size();
    for (size_t i = 0; i < count; ++i) out[i] = *slot(tail + i);
    if (count > 0) tail_.store(tail + count, std::memory_order_release);  // frees the slots
    BP_DCHECK(is_valid_for_consumer());
    return count;
  }

  // Consumer. Whether a pop would find nothing.
  bool is_empty() const noexcept {
    return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_relaxed);
  }

  uint64_t capacity() const noexcept { return mask_ + 1; }

  // Whether what this end may know of it is as it has to be. Threads: the end's.
  bool is_valid_for_producer() const noexcept {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    const uint64_t tail = tail_.load(std::memory_order_acquire);
    return head - tail <= capacity() && head - producer_tail_ <= capacity() &&
           tail - producer_tail_ <= capacity();
  }
  bool is_valid_for_consumer() const noexcept {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    const uint64_t head = head_.load(std::memory_order_acquire);
    return head - tail <= capacity() && consumer_head_ - tail <= capacity() &&
           head - consumer_head_ <= capacity();
  }

 private:
  explicit SpscFifo(uint64_t capacity) noexcept : mask_(capacity - 1) {}

  Item* slot(uint64_t index) noexcept {
    return reinterpret_cast<Item*>(this + 1) + (index & mask_);
  }

  // The producer's lines: one that the consumer reads, one that nobody else does. With both in one
  // an item took more than twice as long: each end waited for the other's look at it.
  alignas(kCacheLineBytes) std::atomic<uint64_t> head_{0};
  alignas(kCacheLineBytes) uint64_t producer_tail_ = 0;
  // The consumer's lines, likewise.
  alignas(kCacheLineBytes) std::atomic<uint64_t> tail_{0};
  alignas(kCacheLineBytes) uint64_t consumer_head_ = 0;
  // Read by both, written by none.
  alignas(kCacheLineBytes) const uint64_t mask_;
};

}  // namespace bedplate
