// A mapped segment of a group: the layout's offsets as pointers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pinned_pool/join/membership.h"
#include "platform/result.h"
#include "transport/messages/fast_box_datapath.h"
#include "transport/shm/membership/group_layout.h"
#include "transport/shm/queue/futex_bell.h"
#include "transport/shm/queue/inbound_fifo_datapath.h"
#include "transport/shm/queue/mesh_lane_datapath.h"
#include "transport/single_copy/single_copy.h"

namespace bedplate {

struct GroupHeader {
  static constexpr uint64_t kMagic = 0x0070'756f'7247'5042;  // "BPGroup"
  static constexpr uint32_t kVersion = 2;

  std::atomic<uint64_t> magic;  // stored last
  uint32_t version;
  BellFence fence;
  PoolId pool_id;
  GroupShape shape;
};
static_assert(sizeof(GroupHeader) <= 128);

// Only the member writes this line, with three exceptions: a sender changes `asleep` to wake the
// member, another member changes `notices`, and the owner stores kWritesNoMore and wakes members.
struct alignas(kCacheLineBytes) MemberWrapper {
  // The epoch of the last change of membership that the member has dealt with. kWritesNoMore: the
  // member stores nothing into this segment any more. A member that finds itself dead stores this
  // value; the owner stores it for a process that has exited or left.
  std::atomic<uint64_t> acknowledged_epoch;
  std::atomic<uint32_t> asleep;   // FutexBell
  std::atomic<uint32_t> notices;  // changes when another member cuts it off
};
inline constexpr uint64_t kWritesNoMore = UINT64_MAX;
static_assert(sizeof(MemberWrapper) == kCacheLineBytes);

// Returns the owner word of a box that `receiver` has given to `sender`. The word of a free box is
// 0, and a receiver takes a free box by compare-and-swap.
constexpr uint64_t pack_box_owner(uint32_t receiver, uint32_t sender) noexcept {
  return uint64_t{receiver + 1} << 32 | (sender + 1);
}

// A view: it owns nothing. Threads: any.
class GroupSegment {
 public:
  GroupSegment() noexcept = default;

  // Makes an empty group in `memory`, which stays the caller's. Requires: check_group_shape;
  // `memory` is zero, is aligned to shape.line_bytes, and has GroupLayout(shape).bytes().
  static GroupSegment create(std::span<std::byte> memory, const GroupShape& shape,
                             const PoolId& pool_id, BellFence fence) noexcept;
  // Opens the group that another process has made. The shape in the segment's header must equal
  // `shape`, which came from the owner. Errors: check_group_shape's; else the first of magic,
  // version, pool, fence, shape or size that is wrong.
  static Result<GroupSegment> attach(std::span<std::byte> memory, const GroupShape& shape,
                                     const PoolId& pool_id) noexcept;

  const GroupShape& shape() const noexcept { return layout_.shape(); }
  const GroupLayout& layout() const noexcept { return layout_; }
  std::span<std::byte> memory() const noexcept { return {base_, layout_.bytes()}; }
  BellFence fence() const noexcept { return fence_; }

  MemberWrapper& wrapper(uint32_t member) const noexcept {
    return *reinterpret_cast<MemberWrapper*>(base_ + layout_.wrapper(member));
  }
  // The card by which others access the member's private memory. The member writes it before it is
  // alive. A member without single copy leaves it zero.
  SingleCopyCard& card(uint32_t member) const noexcept {
    return *reinterpret_cast<SingleCopyCard*>(base_ + layout_.card(member));
  }
  FutexBell bell(uint32_t member) const noexcept { return {wrapper(member).asleep, fence_}; }
  // Byte i belongs to loan i, which the member gave out: the borrower returns the loan by storing
  // the loan's mark here (LoanDescriptor).
  std::span<std::atomic<uint8_t>> returned_loans(uint32_t member) const noexcept {
    return {reinterpret_cast<std::atomic<uint8_t>*>(base_ + layout_.returned_loans(member)),
            shape().loan_count};
  }
  // Bit i tells whether the member holds a loan of member i. Only the member writes these words.
  std::span<std::atomic<uint64_t>> held_loans(uint32_t member) const noexcept {
    return {reinterpret_cast<std::atomic<uint64_t>*>(base_ + layout_.held_loans(member)),
            (shape().member_count + 63) / 64};
  }
  // Bit i tells whether the member has cut off member i, for member i to read.
  std::span<std::atomic<uint64_t>> cut_offs(uint32_t member) const noexcept {
    return {reinterpret_cast<std::atomic<uint64_t>*>(base_ + layout_.cut_offs(member)),
            (shape().member_count + 63) / 64};
  }
  bool has_cut_off(uint32_t member, uint32_t other) const noexcept {
    // Acquire: pairs with set_cut_off.
    return (cut_offs(member)[other / 64].load(std::memory_order_acquire) >> (other % 64) & 1) != 0;
  }
  // Tells `other` that `member`, the caller, has cut it off. Then the caller rings the bell of
  // `other`.
  void set_cut_off(uint32_t member, uint32_t other) const noexcept {
    cut_offs(member)[other / 64].fetch_or(uint64_t{1} << (other % 64), std::memory_order_release);
    wrapper(other).notices.fetch_add(1, std::memory_order_release);
  }
  // Whether no store of the member into this segment can come any more.
  bool writes_no_more(uint32_t member) const noexcept {
    return wrapper(member).acknowledged_epoch.load(std::memory_order_acquire) == kWritesNoMore;
  }
  std::span<std::byte> eager_region(uint32_t member) const noexcept {
    return {base_ + layout_.eager(member), layout_.eager_region_bytes()};
  }
  InboundFifo fifo(uint32_t receiver) const noexcept {
    return {base_ + layout_.fifo(receiver), shape().entry_count, shape().line_bytes};
  }
  MeshLane lane(uint32_t receiver, uint32_t sender) const noexcept {
    return {base_ + layout_.lane_queue(receiver, sender),
            base_ + layout_.lane_head(receiver, sender),
            base_ + layout_.lane_tail(receiver, sender), shape().entry_count};
  }
  std::atomic<uint64_t>& box_owner(uint32_t box) const noexcept {
    return *reinterpret_cast<std::atomic<uint64_t>*>(base_ + layout_.box_owner(box));
  }
  FastBox box(uint32_t index) const noexcept {
    return {base_ + layout_.box(index), shape().box_bytes};
  }
  FastBox inbound_box(uint32_t receiver) const noexcept {
    return {base_ + layout_.inbound_box(receiver), shape().box_bytes};
  }

  // Resets the part of `member`, and its cut-offs, boxes and lanes in the rest of the segment.
  // Requires: `member` is quiet, and GroupKeeper::is_forgotten, so no process uses them.
  void reset_member(uint32_t member) const noexcept;

 private:
  GroupSegment(std::byte* base, const GroupShape& shape, BellFence fence) noexcept
      : base_(base), layout_(shape), fence_(fence) {}

  std::byte* base_ = nullptr;
  GroupLayout layout_;
  BellFence fence_ = BellFence::kSleeper;
};

}  // namespace bedplate
