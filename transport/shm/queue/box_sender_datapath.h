// A sender's end of the fast boxes that a peer gives it, one after the other. The numbers of
// messages continue from box to box, so the number of a message in an earlier box still tells that
// it was read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "platform/assert.h"
#include "transport/messages/fast_box_datapath.h"
#include "transport/shm/endpoint/group_view.h"
#include "transport/shm/queue/outgoing_queue.h"

namespace bedplate {

// Threads: one at a time. Invariant: all messages with a number below uses_ were read. A box goes
// back only when it is empty (is_drained, which OutgoingPath checks before give_up).
class BoxSender {
 public:
  static constexpr QueueKind kKind = QueueKind::kBox;

  // Opens the one box that leads to the peer in an exchange.
  void open(const OutgoingRoute& route) noexcept {
    *this = {};
    take(route.group.segment().inbound_box(route.peer));
  }
  // From now on sends through `box`. Requires: the box is empty.
  void take(const FastBox& box) noexcept { producer_ = FastBoxProducer(box); }
  // Gives the box back to the receiver. Requires: is_drained().
  void give_up() noexcept {
    BP_DCHECK(is_drained());
    uses_ += producer_.next_index();
  }

  // Copies `data` into a slot. Returns false, and changes nothing, if all slots are taken. post(),
  // post_long() and has_room() require a box.
  bool post(const SlotHeader& header, const std::byte* data, size_t data_bytes) noexcept {
    BP_DCHECK(data_bytes <= kInlineBytesMax);
    BP_DCHECK(header.kind != SlotKind::kNone && header.kind != SlotKind::kArea);
    MessageSlot* slot = producer_.next_slot();
    if (slot == nullptr) return false;
    copy_inline(slot->payload, data, data_bytes);
    producer_.publish(*slot, header);
    return true;
  }
  // Copies `payload` into the box's area. Returns kElsewhere if the payload is longer than the
  // area, kNoRoom if there is no space now. Requires: header.bytes is the payload's size.
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

  // Whether the receiver has finished all messages in this box.
  bool is_drained() noexcept { return producer_.is_drained(); }
  // Whether the receiver has finished message number `index`.
  bool is_consumed(uint64_t index) noexcept {
    return index < uses_ || producer_.is_consumed(index - uses_);
  }
  // The number of the last message. Requires: a message was posted through this box.
  uint64_t last_index() const noexcept {
    BP_DCHECK(producer_.next_index() > 0);
    return uses_ + producer_.next_index() - 1;
  }

 private:
  FastBoxProducer producer_;
  uint64_t uses_ = 0;  // messages through earlier boxes
};

}  // namespace bedplate
