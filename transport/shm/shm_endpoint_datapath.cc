#include "transport/shm/shm_endpoint.h"

#include <algorithm>
#include <cstring>

#include "transport/shm/shm_provider.h"

namespace bedplate {

SendStatus ShmEndpoint::am_send(AmId id, std::span<const std::byte> payload) noexcept {
  const SpinGuard guard(lock_, provider_.is_threaded_);
  if (BP_UNLIKELY(!is_open_)) return SendStatus::kGone;
  const auto bytes = static_cast<uint32_t>(payload.size());
  if (payload.size() > kInlineBytesMax) return send_copy(id, payload);
  const SlotHeader header = {SlotKind::kInline, id, bytes, provider_.self_};
  return post(header, payload.data(), bytes) ? SendStatus::kDone : SendStatus::kAgain;
}

// For what a slot would hold.
bool ShmEndpoint::has_eager_room() noexcept {
  const EagerRegion::Piece piece = provider_.take_eager(*this, kInlineBytesMax);
  if (piece.memory == nullptr) return false;
  provider_.cancel_eager(piece);
  return true;
}

bool ShmEndpoint::has_room() noexcept {
  const SpinGuard guard(lock_, provider_.is_threaded_);
  if (!is_open_) return true;
  settle_queue();
  switch (queue_) {
    case Queue::kFifo: return fifo_.has_room();
    case Queue::kBox: return box_->next_slot() != nullptr;
    case Queue::kLane: return lane_.has_room(lane_head_, &known_lane_tail_) && has_eager_room();
  }
  return true;
}

SendStatus ShmEndpoint::send_copy(AmId id, std::span<const std::byte> payload) noexcept {
  if (payload.size() > provider_.limits_.am_bytes_max) return SendStatus::kTooLong;
  const auto bytes = static_cast<uint32_t>(payload.size());
  settle_queue();
  PayloadPlace place;
  if (queue_ == Queue::kBox && bytes <= box_->box().area_bytes()) {
    if (box_->next_slot() == nullptr) return SendStatus::kAgain;
    std::byte* area = box_->next_area(bytes, &place);
    if (area == nullptr) return SendStatus::kAgain;
    std::memcpy(area, payload.data(), bytes);
    // Not post(): it could find the box drained by now, and give it back.
    post_to_box({SlotKind::kArea, id, bytes, provider_.self_},
                reinterpret_cast<const std::byte*>(&place), sizeof place);
    box_->prefetch_area(bytes);
    return SendStatus::kDone;
  }
  const SlotHeader header = {SlotKind::kEager, id, bytes, provider_.self_};
  if (queue_ == Queue::kLane) {
    return post_to_lane(header, payload.data(), bytes) ? SendStatus::kDone : SendStatus::kAgain;
  }
  const EagerRegion::Piece piece = provider_.take_eager(*this, bytes);
  if (piece.memory == nullptr) return SendStatus::kAgain;
  std::memcpy(piece.memory, payload.data(), bytes);
  place.offset = piece.offset;
  if (!post(header, reinterpret_cast<const std::byte*>(&place), sizeof place)) {
    provider_.cancel_eager(piece);
    return SendStatus::kAgain;
  }
  provider_.use_eager(piece, last_use());
  return SendStatus::kDone;
}

SendStatus ShmEndpoint::am_send_loan(AmId id, std::span<const std::byte> header,
                                     std::span<std::byte> block, Completion* returned) noexcept {
  const SpinGuard guard(lock_, provider_.is_threaded_);
  if (BP_UNLIKELY(!is_open_)) return SendStatus::kGone;
  if (header.size() > kLoanHeaderBytesMax) return SendStatus::kTooLong;
  const Segment* segment = provider_.shared_segment(block.data(), block.size());
  if (segment == nullptr || !provider_.members_->may_read(peer_, segment->number)) {
    return SendStatus::kRefused;
  }
  const LoanTable::Lent lent = provider_.lend(block.data(), returned, peer_);
  if (lent.loan == UINT32_MAX) return SendStatus::kAgain;
  LoanDescriptor descriptor;
  descriptor.loan = lent.loan;
  descriptor.mark = lent.mark;
  descriptor.address = reinterpret_cast<uintptr_t>(block.data());
  descriptor.bytes = block.size();
  descriptor.header_bytes = static_cast<uint16_t>(header.size());
  copy_inline(descriptor.header, header.data(), header.size());
  if (!post({SlotKind::kLoan, id, sizeof descriptor, provider_.self_},
            reinterpret_cast<const std::byte*>(&descriptor), sizeof descriptor)) {
    provider_.cancel_loan(descriptor.loan, peer_);
    return SendStatus::kAgain;
  }
  return SendStatus::kPending;
}

bool ShmEndpoint::post(const SlotHeader& header, const std::byte* data,
                       size_t data_bytes) noexcept {
  if (BP_UNLIKELY(queue_ != Queue::kBox || must_return_box_)) {
    settle_queue();
    if (queue_ == Queue::kFifo) return post_to_fifo(header, data, data_bytes);
    if (queue_ == Queue::kLane) return post_to_lane(header, data, data_bytes);
  }
  return post_to_box(header, data, data_bytes);
}

bool ShmEndpoint::post_to_box(const SlotHeader& header, const std::byte* data,
                              size_t data_bytes) noexcept {
  MessageSlot* slot = box_->next_slot();
  if (slot == nullptr) return false;
  copy_inline(slot->payload, data, data_bytes);
  box_->publish(*slot, header);
  bell_.ring();
  return true;
}

bool ShmEndpoint::post_to_fifo(const SlotHeader& header, const std::byte* data,
                               size_t data_bytes) noexcept {
  for (int attempt = 0; attempt < kPublishAttemptsMax; ++attempt) {
    const InboundFifo::Claim claim = fifo_.try_claim(provider_.self_, &known_tail_);
    if (claim.slot == nullptr) return false;
    copy_inline(claim.slot->payload, data, data_bytes);
    if (BP_UNLIKELY(!fifo_.publish(claim, header))) continue;
    next_fifo_index_ = claim.index + 1;
    bell_.ring();
    return true;
  }
  return false;
}

// A lane carries words only: what a slot would hold lies in the eager region.
bool ShmEndpoint::post_to_lane(const SlotHeader& header, const std::byte* data,
                               size_t data_bytes) noexcept {
  if (!lane_.has_room(lane_head_, &known_lane_tail_)) return false;
  const EagerRegion::Piece piece = provider_.take_eager(*this, data_bytes);
  if (piece.memory == nullptr) return false;
  std::copy_n(data, data_bytes, piece.memory);  // also of nothing, from nowhere
  lane_.push(lane_head_, {header.kind, header.am, header.bytes, piece.offset});
  ++lane_head_;
  provider_.use_eager(piece, last_use());
  bell_.ring();
  return true;
}

EagerRegion::Use ShmEndpoint::last_use() const noexcept {
  switch (queue_) {
    case Queue::kFifo: return {peer_, false, next_fifo_index_ - 1};
    case Queue::kBox: return {peer_, true, box_uses_ + box_->next_index() - 1};
    case Queue::kLane: return {peer_, false, lane_head_ - 1};
  }
  return {};
}

bool ShmEndpoint::is_consumed(const EagerRegion::Use& use) noexcept {
  if (use.is_answer) return provider_.answers_no_more(peer_, use.index);
  if (!is_open_) return true;
  // A box is given back when it is empty.
  if (use.is_box) return use.index < box_uses_ || box_->is_consumed(use.index - box_uses_);
  if (queue_ == Queue::kLane) {
    known_lane_tail_ = lane_.tail();
    return static_cast<int32_t>(known_lane_tail_ - static_cast<uint32_t>(use.index)) > 0;
  }
  return fifo_.tail() > use.index;
}

void ShmEndpoint::settle_queue() noexcept {
  if (queue_ == Queue::kFifo && box_index_ != kNoBox && !must_return_box_) {
    // Everything that went through the FIFO was read: what goes through the box comes after it.
    if (fifo_.tail() >= next_fifo_index_) queue_ = Queue::kBox;
  } else if (must_return_box_ && (queue_ == Queue::kFifo || box_->is_drained())) {
    const uint32_t box = box_index_;
    if (!post_to_fifo({SlotKind::kControl, static_cast<uint32_t>(ShmControl::kBoxClosed),
                       sizeof box, provider_.self_},
                      reinterpret_cast<const std::byte*>(&box), sizeof box)) {
      return;
    }
    if (queue_ == Queue::kBox) box_uses_ += box_->next_index();
    queue_ = Queue::kFifo;
    box_index_ = kNoBox;
    must_return_box_ = false;
    provider_.returning_count_.fetch_sub(1, std::memory_order_relaxed);
  }
}

}  // namespace bedplate
