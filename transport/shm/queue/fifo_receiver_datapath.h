// The reading end of a member's inbound FIFO: it delivers messages, and skips slots that a writer
// has claimed and does not publish.
#pragma once

#include <cstdint>

#include "platform/assert.h"
#include "platform/counter.h"
#include "transport/shm/endpoint/group_view.h"
#include "transport/shm/membership/membership_view.h"
#include "transport/shm/queue/inbound_fifo_datapath.h"

namespace bedplate {

// Threads: one. All state is private: peers can scribble over the FIFO.
//
// Invariants: 1. It waits for no slot beyond the FIFO's next lap: drain_until_ and overdue_until_
// are at most a lap ahead of tail_. (is_valid)
class FifoReceiver {
 public:
  // All arguments outlive this. `abandoned` counts the skipped slots.
  void create(const GroupView& group, const MembershipView& view, Counter& abandoned) noexcept;

  // Calls take(header, slot) for each message, at most `budget`; if it returns false the message
  // stays for the next poll. Returns how many slots; one more if this shard must stay awake,
  // because nobody would wake it when a claim times out.
  template <typename Take>
  uint32_t poll(uint32_t budget, Take&& take) noexcept {
    BP_DCHECK_SLOW(is_valid());
    uint32_t count = 0;
    bool is_awaited = false;
    for (; count < budget; ++count, ++tail_) {
      SlotHeader header;
      const MessageSlot& slot = fifo_.peek(tail_, &header);
      if (header.kind == SlotKind::kNone) break;
      if (BP_UNLIKELY(header.kind == SlotKind::kClaimed)) {
        const ClaimEnd end = end_claim(header, &is_awaited);
        if (end == ClaimEnd::kWait) break;
        if (end == ClaimEnd::kPassed) continue;
        fifo_.peek(tail_, &header);
      }
      if (!take(header, slot)) break;
    }
    if (count > 0) fifo_.set_tail(tail_);
    BP_DCHECK_SLOW(is_valid());
    return count + is_awaited;
  }

  // Notes how far to read until nothing can be left of members that are dead by now: up to the
  // first unclaimed slot, since slots are claimed in order.
  void mark_drain() noexcept {
    drain_until_ = first_unclaimed();
    BP_DCHECK_SLOW(is_valid());
  }
  bool is_drained() const noexcept { return tail_ >= drain_until_; }
  // Called when no store of `member` can come any more.
  void forget_writer(uint32_t member) noexcept { fifo_.free_retired_of(member); }

  bool is_valid() const noexcept {
    const uint64_t end = tail_ + fifo_.capacity();
    return drain_until_ <= end && overdue_until_ <= end;
  }

 private:
  // For a claim in the way it reads the clock only once in this many polls: mostly the claim is
  // published within the next few.
  static constexpr uint32_t kPollsPerClaimCheck = 64;

  enum class ClaimEnd : uint8_t { kWait, kPassed, kPublished };
  ClaimEnd end_claim(const SlotHeader& claim, bool* is_awaited) noexcept;
  bool is_overdue(bool* is_awaited) noexcept;
  // The number of the first unclaimed slot.
  uint64_t first_unclaimed() const noexcept;

  const GroupView* group_ = nullptr;
  const MembershipView* view_ = nullptr;
  Counter* abandoned_ = nullptr;
  InboundFifoReader fifo_;
  uint64_t tail_ = 0;
  uint64_t drain_until_ = 0;
  // Once overdue, claimed and unpublished slots before this one are skipped.
  uint64_t overdue_until_ = 0;
  uint64_t overdue_at_ns_ = 0;
  uint32_t claim_polls_ = 0;  // that found a claim in the way
};

}  // namespace bedplate
