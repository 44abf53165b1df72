// The receiving lanes of a member of a mesh, one from each other member.
#pragma once

#include <cstdint>
#include <vector>

#include "platform/assert.h"
#include "transport/shm/queue/inbound_queues.h"
#include "transport/shm/queue/lane_receiver_datapath.h"

namespace bedplate {

// Threads: the polling one.
//
// Invariants: 1. There is an end for each member, and this member's own has read nothing. 2. A lane
// that was read has a sender. (is_valid)
class InboundLanes {
 public:
  void create(const InboxParts& parts) {
    BP_ASSERT(group_ == nullptr);
    group_ = &parts.group;
    view_ = &parts.view;
    dispatch_ = &parts.dispatch;
    lanes_.resize(group_->member_count());
    BP_DCHECK_SLOW(is_valid());
  }

  uint32_t poll(uint32_t budget) noexcept {
    BP_DCHECK_SLOW(is_valid());
    uint32_t count = 0;
    // Lanes of dead members were read to the end when they died (drain), and may be reset any time.
    for (uint32_t sender = 0; sender < group_->member_count(); ++sender) {
      if (view_->known_state(sender) == MemberState::kAlive && sender != group_->self()) {
        count += lanes_[sender].poll(*group_, sender, *dispatch_, budget);
      }
    }
    BP_DCHECK_SLOW(is_valid());
    return count;
  }
  void welcome(uint32_t) noexcept {}  // LaneReceiver sees the new generation
  void drain(uint32_t member) noexcept {
    BP_DCHECK(group_->is_peer(member));
    lanes_[member].poll(*group_, member, *dispatch_, group_->shape().entry_count);
    BP_DCHECK_SLOW(is_valid());
  }
  void mark_drain() noexcept {}
  bool is_drained() const noexcept { return true; }
  void forget_writer(uint32_t) noexcept {}
  InboundBoxes* boxes() noexcept { return nullptr; }
  uint32_t box_count() const noexcept { return 0; }

  bool is_valid() const noexcept {
    if (lanes_.size() != group_->member_count() || lanes_[group_->self()].is_begun()) return false;
    for (const LaneReceiver& lane : lanes_) {
      if (!lane.is_valid()) return false;
    }
    return true;
  }

 private:
  const GroupView* group_ = nullptr;
  const MembershipView* view_ = nullptr;
  ShmDispatch* dispatch_ = nullptr;
  std::vector<LaneReceiver> lanes_;  // by sender
};

}  // namespace bedplate
