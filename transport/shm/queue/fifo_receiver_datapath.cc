#include "transport/shm/queue/fifo_receiver_datapath.h"

#include "platform/clock.h"
#include "platform/units.h"

namespace bedplate {

void FifoReceiver::create(const GroupView& group, const MembershipView& view,
                          Counter& abandoned) noexcept {
  BP_ASSERT(group_ == nullptr && group.traits().first_queue == QueueKind::kFifo);
  group_ = &group;
  view_ = &view;
  abandoned_ = &abandoned;
  fifo_ = InboundFifoReader(group.segment().fifo(group.self()));
}

// Handles a claim of the slot at the tail: waits for its writer, or skips it.
FifoReceiver::ClaimEnd FifoReceiver::end_claim(const SlotHeader& claim, bool* is_awaited) noexcept {
  if (!is_claim(claim, ClaimState::kHeld)) return ClaimEnd::kPassed;  // ended in an earlier lap
  // A claim in the name of no peer will never be published.
  const bool may_write = group_->is_peer(claim.sender) &&
                         group_->members().state(claim.sender) != MemberState::kQuiet &&
                         !group_->segment().writes_no_more(claim.sender);
  const bool may_publish = may_write && !group_->has_died(claim.sender);
  if (may_publish && !is_overdue(is_awaited)) return ClaimEnd::kWait;
  const ClaimState state = may_write ? ClaimState::kRetired : ClaimState::kSkipped;
  if (!fifo_.try_end_claim(tail_, claim, state)) return ClaimEnd::kPublished;
  abandoned_->add(1);
  return ClaimEnd::kPassed;
}

// One timeout covers all slots that are claimed when the wait begins, so several stopped members
// hold up the FIFO no longer than one. If the pool's owner is dead, no further deaths are
// announced: then this timeout decides alone.
bool FifoReceiver::is_overdue(bool* is_awaited) noexcept {
  if (tail_ >= overdue_until_) {
    if (++claim_polls_ % kPollsPerClaimCheck != 0) {
      *is_awaited = true;
      return false;
    }
    overdue_until_ = first_unclaimed();
    overdue_at_ns_ = monotonic_ns() + group_->shape().publish_timeout_ms * kNsPerMs;
  }
  if (monotonic_ns() >= overdue_at_ns_) return true;
  // With no claim behind it, this claim holds up nobody, and its writer will ring, unless the
  // writer has died unnoticed.
  *is_awaited = view_->must_get_on() || first_unclaimed() > tail_ + 1;
  return false;
}

uint64_t FifoReceiver::first_unclaimed() const noexcept {
  SlotHeader header;
  uint64_t index = tail_;
  for (; index - tail_ < fifo_.capacity(); ++index) {
    fifo_.peek(index, &header);
    if (header.kind == SlotKind::kNone) break;
  }
  return index;
}

}  // namespace bedplate
