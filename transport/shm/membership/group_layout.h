// The layout of a group in its segment: one description, from which the plan computes sizes, and
// members find each other's queues.
//
// A group is a trust group with its FIFOs. Its segment holds, in this order:
//
//     header                  what the segment is: magic, version, the shape
//     box owners, boxes       lazy: fast boxes, which receivers give to frequent senders
//     one part per member     contiguous, with everything that belongs to that member:
//       wrapper               its doorbell and what it has acknowledged
//       card                  how its private memory is reached (single copy)
//       returned loans        a byte for each loan, which its borrower sets
//       held loans, cut-offs  bitmaps: the lenders of its loans, and the members that it cut off
//       lazy: claim counter, tail, and the slots of the one inbound FIFO with many writers
//       mesh: a queue for each other member, then heads (outbound) beside tails (inbound)
//       exchange: the one inbound box
//       eager region          copies of messages too long for a slot
//
// Every part is aligned to a cache line (GroupShape::line_bytes), and none to a page. Offsets count
// from the segment's start. The layout is not stored: each process computes it from the shape, so a
// peer cannot forge it.
#pragma once

#include <array>
#include <cstdint>

#include "platform/units.h"
#include "transport/shm/membership/group_shape.h"

namespace bedplate {

// The uses of a group's bytes, as `bedplate plan` lists them.
enum class GroupPart : uint32_t {
  kHeader,
  kBoxOwners,
  kBoxes,
  kWrappers,  // and cards
  kReturnedLoans,
  kHeldLoans,  // and cut-offs
  kClaims,     // lazy: claim counter and tail of each FIFO
  kQueues,
  kHeadsAndTails,  // mesh
  kEager,
  kCount
};
const char* to_text(GroupPart part) noexcept;

class GroupLayout {
 public:
  GroupLayout() noexcept = default;
  // Requires: check_group_shape(shape).
  explicit GroupLayout(const GroupShape& shape) noexcept;

  const GroupShape& shape() const noexcept { return shape_; }
  // The size of the whole group, and of its carve.
  uint64_t bytes() const noexcept { return bytes_; }
  // The bytes for `part`. All parts add up to bytes().
  uint64_t part_bytes(GroupPart part) const noexcept {
    return part_bytes_[static_cast<size_t>(part)];
  }

  uint64_t box_owner(uint32_t box) const noexcept { return box_owners_ + box * sizeof(uint64_t); }
  uint64_t box(uint32_t index) const noexcept {
    return boxes_ + uint64_t{index} * shape_.box_bytes;
  }
  // A member's part, from its wrapper to its eager region.
  uint64_t member(uint32_t index) const noexcept { return members_ + index * member_bytes_; }
  uint64_t member_bytes() const noexcept { return member_bytes_; }

  uint64_t wrapper(uint32_t member_index) const noexcept { return member(member_index); }
  uint64_t card(uint32_t member_index) const noexcept {
    return member(member_index) + shape_.line_bytes;
  }
  uint64_t returned_loans(uint32_t member_index) const noexcept {
    return member(member_index) + returned_;
  }
  uint64_t held_loans(uint32_t member_index) const noexcept { return member(member_index) + held_; }
  uint64_t cut_offs(uint32_t member_index) const noexcept {
    return member(member_index) + cut_offs_;
  }
  uint64_t eager(uint32_t member_index) const noexcept { return member(member_index) + eager_; }
  uint64_t eager_region_bytes() const noexcept { return eager_region_bytes_; }  // 0: no region

  // Lazy.
  uint64_t fifo(uint32_t receiver) const noexcept { return member(receiver) + fifo_; }

  // Mesh. Queues and tails lie in the receiver's part, heads in the sender's. Requires: `receiver`
  // and `sender` differ.
  uint64_t lane_queue(uint32_t receiver, uint32_t sender) const noexcept {
    return member(receiver) + queues_ + other(receiver, sender) * queue_bytes_;
  }
  uint64_t lane_head(uint32_t receiver, uint32_t sender) const noexcept {
    return member(sender) + heads_ + other(sender, receiver) * head_and_tail_bytes_;
  }
  uint64_t lane_tail(uint32_t receiver, uint32_t sender) const noexcept {
    return member(receiver) + heads_ + other(receiver, sender) * head_and_tail_bytes_ +
           head_and_tail_bytes_ / 2;
  }

  // Exchange.
  uint64_t inbound_box(uint32_t receiver) const noexcept { return member(receiver) + fifo_; }

 private:
  // The index of `peer` among the others of `self`.
  static uint64_t other(uint32_t self, uint32_t peer) noexcept {
    return peer < self ? peer : peer - 1;
  }
  void lay_out_group() noexcept;
  void lay_out_member() noexcept;
  void add(GroupPart part, uint64_t count, uint64_t bytes) noexcept {
    part_bytes_[static_cast<size_t>(part)] += count * bytes;
  }

  GroupShape shape_;
  uint64_t bytes_ = 0;
  uint64_t box_owners_ = 0;
  uint64_t boxes_ = 0;
  uint64_t members_ = 0;
  uint64_t member_bytes_ = 0;
  // Offsets from a member's start.
  uint64_t returned_ = 0;
  uint64_t held_ = 0;
  uint64_t cut_offs_ = 0;
  uint64_t fifo_ = 0;
  uint64_t queues_ = 0;
  uint64_t queue_bytes_ = 0;
  uint64_t heads_ = 0;
  uint64_t head_and_tail_bytes_ = 0;
  uint64_t eager_ = 0;
  uint64_t eager_region_bytes_ = 0;
  std::array<uint64_t, static_cast<size_t>(GroupPart::kCount)> part_bytes_ = {};
};

}  // namespace bedplate
