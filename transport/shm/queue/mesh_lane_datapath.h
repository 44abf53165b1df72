// A lane of a mesh: a single-producer, single-consumer ring of words for one ordered pair. Its
// three parts lie apart: the queue and the tail with the receiver, the head with the sender.
//
// A word is a message's header with the offset of its payload in the sender's eager region:
//
//     bits  0..2   kind (kInline, kEager, kLoan or kControl)
//     bits  3..10  active message (kControl: the request)
//     bits 11..23  payload bytes
//     bits 24..63  offset in the sender's eager region
//
// Invariants: 1. tail <= head <= tail + capacity, modulo 2^32; the same for the producer's copy of
// the tail (refresh, LaneSender::is_valid). 2. Words [tail, head) belong to the consumer. 3. Only
// the producer writes the head and the queue, only the consumer the tail.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "platform/assert.h"
#include "transport/messages/message_slot.h"

namespace bedplate {

struct LaneWord {
  SlotKind kind = SlotKind::kNone;
  uint32_t am = 0;
  uint32_t bytes = 0;
  uint64_t offset = 0;
};

constexpr uint64_t pack_lane_word(const LaneWord& word) noexcept {
  return word.offset << kSlotSenderShift | pack_slot(0, {word.kind, word.am, word.bytes, 0});
}
constexpr LaneWord unpack_lane_word(uint64_t word) noexcept {
  const SlotHeader header = unpack_slot(word);
  return {header.kind, header.am, header.bytes, word >> kSlotSenderShift};
}

// The addresses of a lane's parts; the state of the ends is elsewhere.
class MeshLane {
 public:
  static constexpr uint64_t queue_bytes(uint64_t entry_count) noexcept {
    return entry_count * sizeof(uint64_t);
  }

  MeshLane() noexcept = default;
  MeshLane(std::byte* queue, std::byte* head, std::byte* tail, uint32_t entry_count) noexcept
      : queue_(reinterpret_cast<std::atomic<uint64_t>*>(queue)),
        head_(reinterpret_cast<std::atomic<uint32_t>*>(head)),
        tail_(reinterpret_cast<std::atomic<uint32_t>*>(tail)),
        mask_(entry_count - 1) {
    BP_DCHECK(std::has_single_bit(entry_count));
  }

  // Producer. `head` is its own count of words, `known_tail` the tail that it saw last.
  bool has_room(uint32_t head, uint32_t* known_tail) const noexcept {
    BP_DCHECK(head - *known_tail <= capacity());
    if (head - *known_tail <= mask_) return true;
    refresh(head, known_tail);
    return head - *known_tail <= mask_;
  }
  // Reads the tail into `*known_tail`. Ignores an impossible value.
  void refresh(uint32_t head, uint32_t* known_tail) const noexcept {
    BP_DCHECK(head - *known_tail <= capacity());
    const uint32_t now = tail();
    if (head - now <= head - *known_tail) *known_tail = now;
  }
  // Requires: has_room.
  void push(uint32_t head, const LaneWord& word) const noexcept {
    BP_DCHECK(word.bytes <= kSlotBytesMax);
    BP_DCHECK(word.offset >> (64 - kSlotSenderShift) == 0);
    queue_[head & mask_].store(pack_lane_word(word), std::memory_order_relaxed);
    head_->store(head + 1, std::memory_order_release);  // publishes the word and its bytes
  }

  // Consumer.
  uint32_t head() const noexcept { return head_->load(std::memory_order_acquire); }
  LaneWord at(uint32_t index) const noexcept {
    return unpack_lane_word(queue_[index & mask_].load(std::memory_order_relaxed));
  }
  void set_tail(uint32_t tail) const noexcept {
    tail_->store(tail, std::memory_order_release);  // frees the words and their bytes
  }

  uint32_t tail() const noexcept { return tail_->load(std::memory_order_acquire); }
  uint32_t capacity() const noexcept { return mask_ + 1; }

 private:
  std::atomic<uint64_t>* queue_ = nullptr;
  std::atomic<uint32_t>* head_ = nullptr;
  std::atomic<uint32_t>* tail_ = nullptr;
  uint32_t mask_ = 0;
};

}  // namespace bedplate
