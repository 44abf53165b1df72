// A lane: the bounded single-producer, single-consumer FIFO in which shards pass pointers.
//
// Head and tail lie on cache lines of their own, and each end keeps a private copy of both, so in
// steady state a push or pop fetches one line from the other end, the item's. The indices only
// grow; the slot is the index modulo the capacity, a power of two.
//
// A look at the other end's index pulls that cache line away from the other end, which must fetch
// it back for its next item: 160 ns each way between cores without a common cache. Two equally fast
// ends that look all the time spend most of their time on this, and get a few items per look. So an
// end that found only a few items (the producer: free slots) twice in a row waits before its next
// look, until some 400 ns after its last. An end that finds nothing, or has other work for that
// long between two looks, never waits.
//
// Invariants: 1. tail <= head <= tail + capacity. 2. Slots [tail, head) belong to the consumer, the
// others to the producer. 3. Only the producer writes head, only the consumer writes tail. 4. An
// end's copy of the other's index is never ahead of it. is_valid_for_producer() and
// is_valid_for_consumer() check 1 and 4; 2 and 3 hold because each function is for one end.
//
// The FIFO lies in memory that the caller carved. It neither allocates nor wakes anybody, and no
// call waits for the other end; the only wait is the short one above. Threads: one producer and one
// consumer at a time. The memory is private to one process: the consumer believes what it reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>

#include "platform/assert.h"
#include "platform/cache_line.h"
#include "platform/clock.h"
#include "platform/units.h"

namespace bedplate {

// The state of a lane's end: its own index, and its copy of the other's. Threads: its end's.
class LaneEnd {
 public:
  uint64_t own() const noexcept { return own_; }
  uint64_t seen() const noexcept { return seen_; }
  void set_own(uint64_t index) noexcept { own_ = index; }

  // Reads the other end's index; the load pairs with the release that published it. Returns seen().
  // If it finds fewer new items than `few`, but some, it counts that as a reason to wait.
  [[gnu::noinline]] uint64_t look(const std::atomic<uint64_t>& other, uint64_t few) noexcept {
    if (BP_UNLIKELY(waits())) wait_for_more();
    const uint64_t before = seen_;
    seen_ = other.load(std::memory_order_acquire);
    BP_DCHECK(seen_ >= before);
    const uint64_t found = seen_ - before;
    if (found == 0 || found >= few) {
      few_count_ = 0;
    } else {
      ++few_count_;
      looked_at_ = cpu_ticks();
    }
    return seen_;
  }

  // Whether the next look waits if it comes soon after the last.
  bool waits() const noexcept { return few_count_ >= kFewCountMax; }

  static constexpr uint64_t kTicksBetweenLooks = 1000;

 private:
  static constexpr uint32_t kFewCountMax = 2;

  void wait_for_more() const noexcept {
    while (kHasCpuTicks && cpu_ticks() - looked_at_ < kTicksBetweenLooks) cpu_relax();
  }

  uint64_t own_ = 0;
  uint64_t seen_ = 0;
  uint64_t looked_at_ = 0;  // when it last found a few
  uint32_t few_count_ = 0;  // times in a row
};

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
    const uint64_t head = producer_.own();
    if (BP_UNLIKELY(head - producer_.seen() > mask_) &&
        head - producer_.look(tail_, few()) > mask_) {
      return false;
    }
    *slot(head) = item;
    publish(head + 1);
    BP_DCHECK(is_valid_for_producer());
    return true;
  }

  // Producer. Pushes as many of `items` as fit, in order; returns how many.
  size_t push_batch(std::span<const Item> items) noexcept {
    BP_DCHECK(is_valid_for_producer());
    const uint64_t head = producer_.own();
    if (head + items.size() - producer_.seen() > capacity()) producer_.look(tail_, few());
    const uint64_t room = capacity() - (head - producer_.seen());
    const size_t count = room < items.size() ? static_cast<size_t>(room) : items.size();
    for (size_t i = 0; i < count; ++i) *slot(head + i) = items[i];
    if (count > 0) publish(head + count);
    BP_DCHECK(is_valid_for_producer());
    return count;
  }

  // Consumer. Returns false when empty.
  bool try_pop(Item* item) noexcept {
    BP_DCHECK(is_valid_for_consumer());
    const uint64_t tail = consumer_.own();
    if (consumer_.seen() == tail && consumer_.look(head_, few()) == tail) return false;
    *item = *slot(tail);
    free_until(tail + 1);
    BP_DCHECK(is_valid_for_consumer());
    return true;
  }

  // Consumer. Takes at most out.size() items; returns how many: perhaps fewer than are queued, but
  // 0 only if the FIFO is empty.
  size_t pop_batch(std::span<Item> out) noexcept {
    BP_DCHECK(is_valid_for_consumer());
    const uint64_t tail = consumer_.own();
    if (consumer_.seen() == tail) consumer_.look(head_, few());
    const uint64_t ready = consumer_.seen() - tail;
    const size_t count = ready < out.size() ? static_cast<size_t>(ready) : out.size();
    for (size_t i = 0; i < count; ++i) out[i] = *slot(tail + i);
    if (count > 0) free_until(tail + count);
    BP_DCHECK(is_valid_for_consumer());
    return count;
  }

  // Consumer. True if a pop would find nothing.
  bool is_empty() const noexcept {
    return head_.load(std::memory_order_acquire) == consumer_.own();
  }

  uint64_t capacity() const noexcept { return mask_ + 1; }

  // Whether the invariants hold, as far as this end can see. Threads: the end's.
  bool is_valid_for_producer() const noexcept {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    const uint64_t tail = tail_.load(std::memory_order_acquire);
    return head == producer_.own() && head - tail <= capacity() &&
           head - producer_.seen() <= capacity() && tail - producer_.seen() <= capacity();
  }
  bool is_valid_for_consumer() const noexcept {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    const uint64_t head = head_.load(std::memory_order_acquire);
    return tail == consumer_.own() && head - tail <= capacity() &&
           consumer_.seen() - tail <= capacity() && head - consumer_.seen() <= capacity();
  }

 private:
  explicit SpscFifo(uint64_t capacity) noexcept : mask_(capacity - 1) {}

  Item* slot(uint64_t index) noexcept {
    return reinterpret_cast<Item*>(this + 1) + (index & mask_);
  }

  void publish(uint64_t head) noexcept {
    producer_.set_own(head);
    head_.store(head, std::memory_order_release);
  }
  void free_until(uint64_t tail) noexcept {
    consumer_.set_own(tail);
    tail_.store(tail, std::memory_order_release);
  }

  uint64_t few() const noexcept { return capacity() / 8; }

  // The producer's lines: the consumer reads the first, and nobody else touches the second. With
  // both in one line an item took more than twice as long: each end waited for the other's look.
  alignas(kCacheLineBytes) std::atomic<uint64_t> head_{0};
  alignas(kCacheLineBytes) LaneEnd producer_;
  // The consumer's lines, likewise.
  alignas(kCacheLineBytes) std::atomic<uint64_t> tail_{0};
  alignas(kCacheLineBytes) LaneEnd consumer_;
  // Both ends read it, neither writes it.
  alignas(kCacheLineBytes) const uint64_t mask_;
};

}  // namespace bedplate
