// A sender's end of the fast boxes that a peer gives it, one after the other. Messages are numbered
// through all of them, so that the number of one that went through an earlier box still says that
// it was read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "platform/assert.h"
#include "transport/messages/fast_box_datapath.h"
#include "transport/shm/endpoint/shm_place.h"
#include "transport/shm/queue/outgoing_queue.h"

namespace bedplate {

// Threads: one at a time. Invariant: messages below uses_ were read: a box goes back when it is
// empty (is_drained, which OutgoingWay asks before give_up).
class BoxSender {
 public:
  static constexpr QueueKind kKind = QueueKind::kBox;

  // The one box that leads to the peer in an exchange.
  void open(const OutgoingRoute& route) noexcept {
    *this = {};
    take(route.place.segment().inbound_box(route.peer));
  }
  // From now on `box`, which is empty, is the one.
  void take(const FastBox& box) noexcept { producer_ = FastBoxProducer(box); }
  // The box is the receiver's again. Requires: is_drained().
  void give_up() noexcept {
    BP_DCHECK(is_drained());
    uses_ += producer_.next_index();
  }

  // Copies `data` into a slot. Returns false, and changes nothing, when all slots are taken.
  // Requires, as has_room: a box.
  bool post(const SlotHeader& header, const std::byte* data, size_t data_bytes) noexcept {
    BP_DCHECK(data_bytes <= kInlineBytesMax);
    BP_DCHECK(header.kind != SlotKind::kNone && header.kind != SlotKind::kArea);
    MessageSlot* slot = producer_.next_slot();
    if (slot == nullptr) return false;
    copy_inline(slot->payload, data, data_bytes);
    producer_.publish(*slot, header);
    return true;
  }
  // In its area, up to all of that. `header`: with the bytes of the payload.
  LongPost post_long(const SlotHeader& header, std::span<const std::byte> payload) noexcept {
    BP_DCHECK(header.bytes == payload.size());
    if (payload.size() > producer_.box().area_bytes()) return LongPost::kElsewhere;
    MessageSlot* slot = producer_.next_slot();
    if (slot == nullptr) return LongPost::kNoRoom;
    PayloadOffset offset;
    std::byte* area = producer_.next_area(header.bytes, &offset);
    if (area == nullptr) return LongPost::kNoRoom;
    std::memcpy(area, payload.data(), payload.size());
    std::memcpy(slot->payload, &offset, sizeof offset);
    producer_.publish(*slot, {SlotKind::kArea, header.am, header.bytes, header.sender});
    return LongPost::kPosted;
  }
  void prepare_next(uint32_t bytes) noexcept { producer_.prefetch_area(bytes); }
  bool has_room() noexcept { return producer_.next_slot() != nullptr; }

  // Whether the receiver is done with all that went through this box.
  bool is_drained() noexcept { return producer_.is_drained(); }
  // Whether it is done with message number `index`, and the number of the last.
  bool is_consumed(uint64_t index) noexcept {
    return index < uses_ || producer_.is_consumed(index - uses_);
  }
  uint64_t last_index() const noexcept {
    BP_DCHECK(producer_.next_index() > 0);
    return uses_ + producer_.next_index() - 1;
  }

 private:
  FastBoxProducer producer_;
  uint64_t uses_ = 0;  // messages through the boxes before this one
};

}  // namespace bedplate
