// The fast box: a single-producer, single-consumer ring of slots for one pair that talks often.
//
//     ack line    how many messages the consumer has finished; only the consumer writes it
//     slots       a quarter of the box, at most kFastBoxSlotCountMax
//     area        payloads longer than a slot, each contiguous
//
// The producer publishes with one release store into the line that carries the message. It reads
// the ack line only when its last look says that the slots, or the area, are full. It keeps all its
// state in its own memory, so a consumer that scribbles in the box can only spoil its own messages.
//
// Invariants: 1. acknowledged <= consumed <= produced <= acknowledged + slots. 2. The area's bytes
// from the oldest unacknowledged message to the newest belong to the consumer. 3. The consumer
// writes only the ack line, the producer everything else. is_valid() of each end checks 1 and 2 for
// its private state. Each end checks the other end's words, and refuses bad ones without an assert.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "platform/assert.h"
#include "platform/units.h"
#include "transport/messages/message_slot.h"

namespace bedplate {

inline constexpr uint32_t kFastBoxBytesMin = 1024;
inline constexpr uint32_t kFastBoxBytesMax = 65536;
inline constexpr uint32_t kFastBoxSlotCountMax = 64;

// The layout of a box.
class FastBox {
 public:
  FastBox() noexcept = default;
  // Requires: `memory` is aligned to the cache line; `bytes` is a power of two from
  // kFastBoxBytesMin to kFastBoxBytesMax.
  FastBox(std::byte* memory, uint32_t bytes) noexcept : memory_(memory), bytes_(bytes) {
    BP_DCHECK(reinterpret_cast<uintptr_t>(memory) % kCacheLineBytes == 0);
    BP_DCHECK(std::has_single_bit(bytes));
    BP_DCHECK(bytes >= kFastBoxBytesMin && bytes <= kFastBoxBytesMax);
  }

  static constexpr uint32_t slot_count(uint32_t bytes) noexcept {
    return bytes / 256 < kFastBoxSlotCountMax ? bytes / 256 : kFastBoxSlotCountMax;
  }
  static constexpr uint32_t area_bytes(uint32_t bytes) noexcept {
    return bytes - static_cast<uint32_t>(kCacheLineBytes) * (1 + slot_count(bytes));
  }

  std::byte* memory() const noexcept { return memory_; }
  uint32_t bytes() const noexcept { return bytes_; }
  unsigned slot_count_log2() const noexcept {
    return static_cast<unsigned>(std::countr_zero(slot_count(bytes_)));
  }
  uint32_t area_bytes() const noexcept { return area_bytes(bytes_); }

  std::atomic<uint64_t>& ack() const noexcept {
    return *reinterpret_cast<std::atomic<uint64_t>*>(memory_);
  }
  MessageSlot& slot(uint64_t index) const noexcept {
    return reinterpret_cast<MessageSlot*>(memory_ + kCacheLineBytes)[index];
  }
  std::byte* area() const noexcept { return memory_ + kCacheLineBytes * (1 + slot_count(bytes_)); }

  // Empties it. Requires: neither end uses it.
  void clear() const noexcept { std::memset(memory_, 0, bytes_); }

 private:
  std::byte* memory_ = nullptr;
  uint32_t bytes_ = 0;
};

static_assert(FastBox::area_bytes(kFastBoxBytesMin) > 0);
static_assert(std::has_single_bit(FastBox::slot_count(kFastBoxBytesMin)) &&
              std::has_single_bit(kFastBoxSlotCountMax));

// The writing end. Threads: one at a time.
class FastBoxProducer {
 public:
  FastBoxProducer() noexcept = default;
  // Requires: the box is empty (clear()).
  explicit FastBoxProducer(FastBox box) noexcept
      : box_(box),
        slot_count_log2_(box.slot_count_log2()),
        slot_mask_((1u << slot_count_log2_) - 1) {}

  // The slot for the next message, or nullptr if none is free. The caller fills its payload, then
  // calls publish().
  MessageSlot* next_slot() noexcept {
    if (BP_UNLIKELY(produced_ - acknowledged_ > slot_mask_)) {
      if (!refresh() || produced_ - acknowledged_ > slot_mask_) return nullptr;
    }
    return &box_.slot(produced_ & slot_mask_);
  }
  void publish(MessageSlot& slot, const SlotHeader& header) noexcept {
    BP_DCHECK(&slot == &box_.slot(produced_ & slot_mask_));
    BP_DCHECK(produced_ - acknowledged_ <= slot_mask_);  // else the consumer may still read it
    BP_DCHECK_SLOW(is_valid());
    area_end_[produced_ & slot_mask_] = area_head_;
    slot.header.store(pack_slot(lap_of(produced_, slot_count_log2_), header),
                      std::memory_order_release);  // pairs with FastBoxConsumer::peek
    ++produced_;
    // Refreshes now, while nobody waits for it, rather than before the next message.
    if (produced_ - acknowledged_ > slot_mask_) refresh();
    BP_DCHECK_SLOW(is_valid());
  }

  // Takes space for `bytes` in the area for the next message; the slot of that message must carry
  // `*offset` as its payload. Returns nullptr if there is no space now, or if the area is smaller.
  // Requires: next_slot() returned a slot; called at most once before each publish().
  std::byte* next_area(uint32_t bytes, PayloadOffset* offset) noexcept;

  // Called after a message of `bytes` in the area: prefetches the lines for the next one, while
  // nobody waits for them. Does nothing after a short message, since that would gain nothing.
  void prefetch_area(uint32_t bytes) noexcept;

  // Whether the consumer has finished all messages.
  bool is_drained() noexcept {
    if (produced_ == acknowledged_) return true;
    return refresh() && produced_ == acknowledged_;
  }
  // Whether the consumer has finished message number `index`.
  bool is_consumed(uint64_t index) noexcept {
    if (index < acknowledged_) return true;
    return refresh() && index < acknowledged_;
  }
  // The number of the next message.
  uint64_t next_index() const noexcept { return produced_; }
  const FastBox& box() const noexcept { return box_; }
  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kPrefetchedBytesMin = 4 * kCacheLineBytes;
  static constexpr uint64_t kPrefetchedBytesMax = 16 * kCacheLineBytes;

  // Reads the ack line. Returns false, and changes nothing, if the value there is impossible.
  bool refresh() noexcept;

  FastBox box_;
  unsigned slot_count_log2_ = 0;
  uint32_t slot_mask_ = 0;
  uint64_t produced_ = 0;
  uint64_t acknowledged_ = 0;
  // Both count bytes since the box was made, including gaps at the area's end. 64 bits never wrap.
  uint64_t area_head_ = 0;
  uint64_t area_tail_ = 0;
  uint64_t area_offset_ = 0;  // area_head_ modulo the area; a division would cost more
  uint64_t area_end_[kFastBoxSlotCountMax] = {};  // area_head_ after each message
};

// The reading end. Threads: one.
class FastBoxConsumer {
 public:
  FastBoxConsumer() noexcept = default;
  explicit FastBoxConsumer(FastBox box) noexcept
      : box_(box),
        slot_count_log2_(box.slot_count_log2()),
        slot_mask_((1u << slot_count_log2_) - 1) {}

  // Returns the next message's slot, and its header in `*header`. The producer may have written
  // anything there: the caller checks it. Returns nullptr if there is no message; then it also
  // acknowledges all earlier messages, since the producer may wait for just that.
  MessageSlot* peek(SlotHeader* header) noexcept {
    MessageSlot& slot = box_.slot(consumed_ & slot_mask_);
    const uint64_t word = slot.header.load(std::memory_order_acquire);
    if (slot_lap(word) != lap_of(consumed_, slot_count_log2_)) {
      if (consumed_ != acknowledged_) acknowledge();
      return nullptr;
    }
    *header = unpack_slot(word);
    return &slot;
  }
  // The payload of a kArea message, or nullptr if it is not inside the area.
  const std::byte* area_payload(const PayloadOffset& offset, uint32_t bytes) const noexcept {
    const uint64_t area_bytes = box_.area_bytes();
    if (offset.bytes > area_bytes || bytes > area_bytes - offset.bytes) return nullptr;
    return box_.area() + offset.bytes;
  }
  // Finishes the message that peek returned. It acknowledges only after a quarter of the slots, so
  // that this thread's answers do not wait for the ack line.
  void consume() noexcept {
    BP_DCHECK_SLOW(is_valid());
    if (++consumed_ - acknowledged_ > slot_mask_ / 4) acknowledge();
  }
  // Tells the producer of all finished messages.
  void acknowledge() noexcept {
    box_.ack().store(consumed_, std::memory_order_release);  // pairs with refresh
    acknowledged_ = consumed_;
    BP_DCHECK_SLOW(is_valid());
  }
  uint64_t consumed() const noexcept { return consumed_; }
  bool is_valid() const noexcept {
    return acknowledged_ <= consumed_ && consumed_ - acknowledged_ <= slot_mask_ / 4;
  }
  const FastBox& box() const noexcept { return box_; }

 private:
  FastBox box_;
  unsigned slot_count_log2_ = 0;
  uint32_t slot_mask_ = 0;
  uint64_t consumed_ = 0;
  uint64_t acknowledged_ = 0;
};

inline bool FastBoxProducer::refresh() noexcept {
  const uint64_t acknowledged = box_.ack().load(std::memory_order_acquire);
  if (acknowledged - acknowledged_ > produced_ - acknowledged_) return false;
  if (acknowledged != acknowledged_) {
    area_tail_ = area_end_[(acknowledged - 1) & slot_mask_];
    acknowledged_ = acknowledged;
  }
  BP_DCHECK_SLOW(is_valid());
  return true;
}

inline bool FastBoxProducer::is_valid() const noexcept {
  if (acknowledged_ > produced_ || produced_ - acknowledged_ > slot_mask_ + 1) return false;
  const uint64_t area_bytes = box_.area_bytes();
  uint64_t end = area_tail_;
  for (uint64_t index = acknowledged_; index != produced_; ++index) {
    if (area_end_[index & slot_mask_] < end) return false;
    end = area_end_[index & slot_mask_];
  }
  return end <= area_head_ && area_head_ - area_tail_ <= area_bytes && area_offset_ <= area_bytes &&
         area_head_ % area_bytes == area_offset_ % area_bytes;
}

inline void FastBoxProducer::prefetch_area(uint32_t bytes) noexcept {
  if (bytes < kPrefetchedBytesMin) return;
  const uint64_t area_bytes = box_.area_bytes();
  const uint64_t wanted = align_up(bytes, kCacheLineBytes);
  const bool begins_anew = area_offset_ + wanted > area_bytes;
  const uint64_t head = area_head_ + wanted + (begins_anew ? area_bytes - area_offset_ : 0);
  // Does not fetch lines that the consumer may still be reading.
  if (head - area_tail_ > area_bytes && (!refresh() || head - area_tail_ > area_bytes)) return;
  const uint64_t offset = begins_anew ? 0 : area_offset_;
  for (uint64_t at = 0; at < std::min(wanted, kPrefetchedBytesMax); at += kCacheLineBytes) {
    prefetch_for_write(box_.area() + offset + at);
  }
}

inline std::byte* FastBoxProducer::next_area(uint32_t bytes, PayloadOffset* offset) noexcept {
  const uint64_t area_bytes = box_.area_bytes();
  const uint64_t wanted = align_up(bytes, kCacheLineBytes);
  if (wanted > area_bytes) return nullptr;
  // Contiguous: if the rest at the area's end is too short, the message begins at the start.
  const bool begins_anew = area_offset_ + wanted > area_bytes;
  const uint64_t skipped = begins_anew ? area_bytes - area_offset_ : 0;
  const uint64_t head = area_head_ + skipped + wanted;
  if (head - area_tail_ > area_bytes && (!refresh() || head - area_tail_ > area_bytes)) {
    // An empty box starts again at the area's beginning. Otherwise a message that is longer than
    // the space before and after the current position could never be sent.
    if (produced_ != acknowledged_) return nullptr;
    area_head_ = area_tail_ = area_head_ + area_bytes - area_offset_;
    area_offset_ = 0;
    return next_area(bytes, offset);
  }
  area_head_ = head;
  offset->bytes = begins_anew ? 0 : area_offset_;
  area_offset_ = offset->bytes + wanted;
  BP_DCHECK(area_offset_ <= area_bytes && area_head_ - area_tail_ <= area_bytes);
  return box_.area() + offset->bytes;
}

}  // namespace bedplate
