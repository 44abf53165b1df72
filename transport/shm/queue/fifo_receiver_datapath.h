// The reading end of a member's inbound FIFO: it delivers messages, and ends claims that their
// writers do not publish.
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
// Invariant: drain_until_ and overdue_until_ are at most a lap ahead of tail_. (is_valid)
class FifoReceiver {
 public:
  // All arguments outlive this. `abandoned` counts the ended claims.
  void create(const GroupView& group, const MembershipView& view, Counter& abandoned) noexcept;

  // Calls take(header, slot) for each message, for at most `budget` slots. If take() returns false,
  // the message stays for the next poll. Returns how many slots it has finished, and one more if
  // this shard must stay awake, because nobody would wake it when a claim times out.
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
  // Makes the slots that `member` has blocked usable again. Requires: no store of `member` can come
  // any more.
  void forget_writer(uint32_t member) noexcept { fifo_.free_retired_of(member); }

  bool is_valid() const noexcept {
    const uint64_t end = tail_ + fifo_.capacity();
    return drain_until_ <= end && overdue_until_ <= end;
  }

 private:
  // Only one in this many polls that find a claim in the way begins a timeout, and so reads the
  // clock: most claims are published within the next few polls. While a timeout runs, each such
  // poll reads the clock.
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
  // From overdue_at_ns_ on, poll() ends the unpublished claims of slots before this one.
  uint64_t overdue_until_ = 0;
  uint64_t overdue_at_ns_ = 0;
  uint32_t claim_polls_ = 0;  // polls that found a claim in the way, with no timeout running
};

}  // namespace bedplate
