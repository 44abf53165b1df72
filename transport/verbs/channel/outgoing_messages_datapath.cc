#include "transport/verbs/channel/outgoing_messages_datapath.h"

namespace bedplate {

std::byte* OutgoingMessages::create(std::byte* memory) noexcept {
  BP_DCHECK(slots_ == nullptr && memory != nullptr);
  window_ = parts_.shape.window;
  message_bytes_ = parts_.shape.message_bytes;
  slots_ = memory;
  std::byte* const behind = slots_ + window_ * message_bytes_;
  acknowledgements_ = reinterpret_cast<VerbsMessageHeader*>(behind);
  return behind + kAcknowledgementsMax * sizeof(VerbsMessageHeader);
}

void OutgoingMessages::send(VerbsMessageKind kind, AmId id, uint32_t bytes) noexcept {
  BP_DCHECK(channel_.may_send && has_credit() && bytes <= parts_.limits.am_bytes_max);
  VerbsMessageHeader& header = header_of(next_);
  header = {};
  header.number = next_;
  header.kind = kind;
  header.am = id;
  header.bytes = bytes;
  ++next_;
  list(header);
}

void OutgoingMessages::list(VerbsMessageHeader& header) noexcept {
  const VerbsLink& link = channel_.link;
  BP_DCHECK(channel_.may_send && header.number - consumed_ < window_);
  header.consumed = told_ = link.received;
  header.mark = link.packet_number;
  header.index = link.peer_index;
  const auto bytes = static_cast<uint32_t>(sizeof header) + header.bytes;
  const SendQueue::Slot slot = channel_.queue.add(IBV_WR_SEND, {.kind = RequestKind::kMessage});
  slot.pieces[0] = {reinterpret_cast<uintptr_t>(&header), bytes, parts_.memory_key};
  slot.request.num_sge = 1;
  if (bytes <= link.queue_pair.inline_bytes()) slot.request.send_flags = IBV_SEND_INLINE;
}

// An acknowledgement needs no credit: the peer has receives for it, and the queue keeps a request.
void OutgoingMessages::acknowledge() noexcept {
  BP_DCHECK(channel_.may_send && acknowledgements_out_ <= kAcknowledgementsMax);
  if (acknowledgements_out_ == kAcknowledgementsMax || channel_.queue.room() == 0) return;
  const VerbsLink& link = channel_.link;
  VerbsMessageHeader& header = acknowledgements_[next_acknowledgement_++ % kAcknowledgementsMax];
  header = {};
  header.consumed = told_ = link.received;
  header.mark = link.packet_number;
  header.index = link.peer_index;
  header.kind = VerbsMessageKind::kAcknowledgement;
  const SendQueue::Slot slot =
      channel_.queue.add(IBV_WR_SEND, {.kind = RequestKind::kAcknowledgement});
  slot.pieces[0] = {reinterpret_cast<uintptr_t>(&header), sizeof header, parts_.memory_key};
  slot.request.num_sge = 1;
  if (sizeof header <= link.queue_pair.inline_bytes()) slot.request.send_flags = IBV_SEND_INLINE;
  ++acknowledgements_out_;
}

bool OutgoingMessages::begin_life() noexcept {
  VerbsLink& link = channel_.link;
  if (link.is_fresh) {
    link.is_fresh = false;
    parts_.counters->lost.add(next_ - consumed_);
    next_ = consumed_ = 0;
  } else if (link.peer_received - consumed_ > next_ - consumed_) {
    return false;
  } else {
    consumed_ = link.peer_received;
  }
  told_ = link.received;  // the handshake has told the peer
  return true;
}

void OutgoingMessages::resend() noexcept {
  parts_.counters->resent.add(next_ - consumed_);
  for (uint64_t number = consumed_; number != next_; ++number) list(header_of(number));
}

void OutgoingMessages::void_loans() noexcept {
  BP_DCHECK(!channel_.is_live);
  for (uint64_t number = consumed_; number != next_; ++number) {
    VerbsMessageHeader& header = header_of(number);
    if (header.kind == VerbsMessageKind::kMessage) continue;
    header.kind = VerbsMessageKind::kNothing;
    header.bytes = 0;
  }
}

bool OutgoingMessages::is_valid() const noexcept {
  if (next_ - consumed_ > window_) return false;
  for (uint64_t number = consumed_; number != next_; ++number) {
    const VerbsMessageHeader& header = header_of(number);
    if (header.number != number || header.bytes > parts_.limits.am_bytes_max) return false;
  }
  if (channel_.is_live && untold_count() > window_) return false;
  return acknowledgements_out_ <= kAcknowledgementsMax &&
         acknowledgements_out_ == channel_.count_of(RequestKind::kAcknowledgement);
}

}  // namespace bedplate
