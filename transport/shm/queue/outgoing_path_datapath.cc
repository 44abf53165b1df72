#include "transport/shm/queue/outgoing_path_datapath.h"

#include <cstring>

namespace bedplate {

OutgoingPath::OutgoingPath(OutgoingParts& parts, uint32_t peer) noexcept
    : parts_(parts), peer_(peer), bell_(parts.group.bell_of(peer)) {
  BP_ASSERT(parts.group.is_peer(peer));
}

void OutgoingPath::open(uint64_t generation, bool is_open) noexcept {
  close();
  parts_.stock.forget(peer_);
  const GroupView& group = parts_.group;
  generation_ = generation;
  is_open_ = is_open;
  bell_ = group.bell_of(peer_);
  box_index_ = kNoBox;
  box_ = {};
  queue_ = group.traits().first_queue;
  with_queue(queue_, [&](auto& queue) noexcept {
    queue.open({group, parts_.stock, *this, peer_});
  });
  BP_DCHECK_SLOW(is_valid());
}

void OutgoingPath::close() noexcept {
  is_open_ = must_settle_ = false;
  BP_DCHECK(!must_return_box_ || parts_.returning_count > 0);
  if (must_return_box_) --parts_.returning_count;
  must_return_box_ = false;
  BP_DCHECK_SLOW(is_valid());
}

bool OutgoingPath::has_room() noexcept {
  BP_DCHECK(is_open_);
  if (must_settle_) settle();
  return with_queue(queue_, [](auto& queue) noexcept { return queue.has_room(); });
}

SendStatus OutgoingPath::send_long(AmId id, std::span<const std::byte> payload) noexcept {
  if (payload.size() > parts_.am_bytes_max) return SendStatus::kTooLong;
  const auto bytes = static_cast<uint32_t>(payload.size());
  if (must_settle_) settle();
  const SlotHeader header = {SlotKind::kEager, id, bytes, parts_.group.self()};
  // Does not settle again first: that could find the box drained by now, and give it back.
  const LongPost outcome = with_queue(queue_, [&](auto& queue) noexcept {
    const LongPost posted = queue.post_long(header, payload);
    if (posted == LongPost::kPosted) {
      bell_.ring();
      queue.prepare_next(bytes);
    }
    return posted;
  });
  if (outcome == LongPost::kElsewhere) return send_eager(header, payload);
  return outcome == LongPost::kPosted ? SendStatus::kDone : SendStatus::kAgain;
}

SendStatus OutgoingPath::send_eager(const SlotHeader& header,
                                    std::span<const std::byte> payload) noexcept {
  BP_DCHECK(header.kind == SlotKind::kEager && header.bytes == payload.size());
  const EagerRegion::Piece piece = take_eager(payload.size());
  if (piece.memory == nullptr) return SendStatus::kAgain;
  std::memcpy(piece.memory, payload.data(), payload.size());
  const PayloadOffset offset = {piece.offset};
  if (!post(header, reinterpret_cast<const std::byte*>(&offset), sizeof offset)) {
    parts_.stock.cancel(piece);
    return SendStatus::kAgain;
  }
  parts_.stock.set_use(piece, last_use());
  return SendStatus::kDone;
}

EagerRegion::Use OutgoingPath::last_use() noexcept {
  return with_queue(queue_, [&](auto& queue) noexcept {
    return EagerRegion::Use{peer_, queue.last_index(), queue.kKind, false, this};
  });
}

bool OutgoingPath::is_consumed(const EagerRegion::Use& use) noexcept {
  BP_DCHECK(use.path == this);
  if (use.is_answer) return parts_.group.answers_no_more(peer_, use.index);
  if (!is_open_) return true;
  return with_queue(use.queue, [&](auto& queue) noexcept { return queue.is_consumed(use.index); });
}

void OutgoingPath::use_box(uint32_t box) noexcept {
  BP_ASSERT(is_open_ && box_index_ == kNoBox && queue_ == QueueKind::kFifo);
  box_index_ = box;
  box_.take(parts_.group.segment().box(box));
  must_settle_ = true;
  settle();
}

void OutgoingPath::return_box() noexcept {
  BP_ASSERT(is_open_ && box_index_ != kNoBox);
  if (must_return_box_) return;
  must_return_box_ = must_settle_ = true;
  ++parts_.returning_count;
  settle();
}

void OutgoingPath::settle() noexcept {
  BP_DCHECK_SLOW(is_valid());
  if (!must_return_box_) {
    // Messages through the box must come after the FIFO's, so wait until all of those were read.
    if (!fifo_.is_drained()) return;
    queue_ = QueueKind::kBox;
    must_settle_ = false;
  } else if (queue_ == QueueKind::kFifo || box_.is_drained()) {
    const uint32_t box = box_index_;
    if (!fifo_.post({SlotKind::kControl, static_cast<uint32_t>(ShmControl::kBoxClosed), sizeof box,
                     parts_.group.self()},
                    reinterpret_cast<const std::byte*>(&box), sizeof box)) {
      return;
    }
    bell_.ring();
    box_.give_up();
    queue_ = QueueKind::kFifo;
    box_index_ = kNoBox;
    must_return_box_ = must_settle_ = false;
    BP_DCHECK(parts_.returning_count > 0);
    --parts_.returning_count;
  }
  BP_DCHECK_SLOW(is_valid());
}

bool OutgoingPath::is_valid() const noexcept {
  if (must_return_box_ && !must_settle_) return false;
  if (must_settle_ && (!is_open_ || box_index_ == kNoBox)) return false;
  const bool is_given_boxes = parts_.group.traits().gives_boxes;
  if (!is_given_boxes || !is_open_) return is_given_boxes || box_index_ == kNoBox;
  return (queue_ == QueueKind::kBox || must_settle_) == (box_index_ != kNoBox);
}

}  // namespace bedplate
