// A sender's end of a peer's inbound FIFO, which it shares with all others that write there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "transport/shm/endpoint/group_view.h"
#include "transport/shm/queue/inbound_fifo_datapath.h"
#include "transport/shm/queue/outgoing_queue.h"

namespace bedplate {

// Threads: one at a time.
class FifoSender {
 public:
  static constexpr QueueKind kKind = QueueKind::kFifo;

  void open(const OutgoingRoute& route) noexcept {
    *this = {};
    fifo_ = route.group.segment().fifo(route.peer);
    self_ = route.group.self();
  }

  // Copies `data` into a slot. Returns false if there is no space. If the receiver has ended the
  // claim, because this process was stopped for too long, tries again in another slot; returns
  // false after kPublishAttemptsMax slots.
  bool post(const SlotHeader& header, const std::byte* data, size_t data_bytes) noexcept {
    BP_DCHECK(data_bytes <= kInlineBytesMax);
    BP_DCHECK(header.kind != SlotKind::kNone && header.kind != SlotKind::kClaimed);
    BP_DCHECK(header.sender == self_ && "a slot is claimed and published in one name");
    for (int attempt = 0; attempt < kPublishAttemptsMax; ++attempt) {
      const InboundFifo::Claim claim = fifo_.try_claim(self_, &known_tail_);
      if (claim.slot == nullptr) return false;
      copy_inline(claim.slot->payload, data, data_bytes);
      if (BP_UNLIKELY(!fifo_.publish(claim, header))) continue;
      next_index_ = claim.index + 1;
      return true;
    }
    return false;
  }
  // The FIFO carries no message that is longer than a slot.
  LongPost post_long(const SlotHeader&, std::span<const std::byte>) const noexcept {
    return LongPost::kElsewhere;
  }
  void prepare_next(uint32_t) const noexcept {}
  bool has_room() const noexcept { return fifo_.has_room(); }

  // Whether the receiver has finished everything that was sent here.
  bool is_drained() const noexcept { return fifo_.tail() >= next_index_; }
  // Whether the receiver has finished message number `index`.
  bool is_consumed(uint64_t index) const noexcept { return fifo_.tail() > index; }
  // The number of the last posted message. Requires: there is one.
  uint64_t last_index() const noexcept { return next_index_ - 1; }

 private:
  static constexpr int kPublishAttemptsMax = 4;

  InboundFifo fifo_;
  uint32_t self_ = 0;  // the member that slots are claimed for
  uint64_t known_tail_ = 0;
  uint64_t next_index_ = 0;  // one more than the number of the last posted message
};

}  // namespace bedplate
