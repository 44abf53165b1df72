#include "apps/tsrelay/local_reader_datapath.h"

#include <cstring>

namespace bedplate::relay {

void LocalReader::create(PacketRing& ring, Messenger* messenger,
                         ReaderCounters& counters) noexcept {
  BP_ASSERT(ring_ == nullptr);
  ring_ = &ring;
  messenger_ = messenger;
  counters_ = &counters;
  room_.self = this;
  room_.call = [](RoomCall&) noexcept {};  // the next pump tries again
  for (Lent& lent : lents_) {
    lent.self = this;
    lent.call = [](Completion& self, Outcome outcome) noexcept {
      auto& its = static_cast<Lent&>(self);
      its.self->returned(its, outcome);
    };
    free_.push(lent);
  }
  ring.add_tap(*this);
}

bool LocalReader::is_valid() const noexcept {
  if (waits_for_loans_ && lent_count_ == 0) return false;
  if (to_ == nullptr && room_.is_waiting()) return false;
  return lent_count_ <= kLoansMax &&
         free_.has_just(kLoansMax - lent_count_,
                        [this](const Lent& lent) { return lent.self == this; });
}

void LocalReader::begin(Endpoint& to, AmId id) noexcept {
  BP_ASSERT(is_free() || is_of(to));
  to_ = &to;
  id_ = id;
  waits_for_loans_ = false;
  next_ = ring_->ready_end();
  number_ = 0;
  BP_DCHECK_SLOW(is_valid());
}

void LocalReader::end() noexcept {
  if (room_.is_waiting()) messenger_->take_back(room_);
  to_ = nullptr;
  BP_DCHECK_SLOW(is_valid());
}

void LocalReader::returned(Lent& lent, Outcome outcome) noexcept {
  BP_ASSERT(lent.self == this && lent_count_ > 0);
  ring_->table().let_go(lent.packet);
  free_.push(lent);
  --lent_count_;
  waits_for_loans_ = false;
  counters_->lent.set(counters_->lent.read() - 1);
  // The reader's process is gone: stops sending to it.
  if (outcome == Outcome::kUnknown && to_ != nullptr) {
    counters_->gone.add(1);
    end();
  }
  BP_DCHECK_SLOW(is_valid());
}

// Returns false if the packet has to be sent again later.
bool LocalReader::lend(const Packet& packet, uint32_t index) noexcept {
  std::byte head[kHeadBytes];
  const uint32_t offset = packet.rtp.header_bytes;
  const uint32_t loan_bytes = offset + packet.payload_bytes;
  BP_DCHECK(offset < loan_bytes && loan_bytes <= packet.byte_count);
  std::memcpy(head, &number_, sizeof number_);
  std::memcpy(head + sizeof number_, &offset, sizeof offset);
  BP_DCHECK(to_ != nullptr && !free_.is_empty());
  Lent& lent = *free_.first();
  const std::span block(const_cast<std::byte*>(packet.bytes), loan_bytes);
  const SendStatus status = to_->am_send_loan(id_, head, block, &lent);
  if (status == SendStatus::kAgain) {
    // If the queue has room, the table of loans is full, and nothing signals when that has room. If
    // other readers have all the loans, the next packet retries.
    const bool has_room = to_->has_room();
    waits_for_loans_ = has_room && lent_count_ > 0;
    if (!has_room) messenger_->notify_room(*to_, room_);
    return false;
  }
  if (status == SendStatus::kPending) {
    free_.pop();
    lent.packet = index;
    ring_->table().hold(index);
    ++lent_count_;
    BP_DCHECK_SLOW(is_valid());
    counters_->lent.set(counters_->lent.read() + 1);
  } else if (status != SendStatus::kDone) {
    // It is gone, or may not read the buffers: an empty message tells it so.
    if (status != SendStatus::kGone) (void)to_->am_send(id_, {});
    counters_->gone.add(1);
    end();
    return true;
  }
  counters_->packets.add(1);
  return true;
}

uint32_t LocalReader::pump(uint64_t) noexcept {
  BP_KEEPS_VALID(*this);
  const uint64_t begun_at = next_;
  for (; to_ != nullptr && next_ < ring_->ready_end(); ++next_) {
    const Packet& packet = ring_->at(next_);
    if (packet.kind != PacketKind::kMedia) continue;
    const bool waits = free_.is_empty() || waits_for_loans_ || room_.is_waiting();
    if (waits || !lend(packet, ring_->index_at(next_))) {
      return static_cast<uint32_t>(next_ - begun_at);
    }
    ++number_;
  }
  const auto passed = static_cast<uint32_t>(next_ - begun_at);
  if (to_ == nullptr) next_ = ring_->ready_end();
  return passed;
}

void LocalReader::missed(const Packet& packet) noexcept {
  if (to_ == nullptr || packet.kind != PacketKind::kMedia) return;
  counters_->dropped.add(1);
  ++number_;
}

}  // namespace bedplate::relay
