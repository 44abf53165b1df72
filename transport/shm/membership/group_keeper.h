// The pool owner's work for a group when members come and go: the transport's half of join and
// leave (pinned_pool/join/join_roster.h has the other half).
#pragma once

#include "pinned_pool/join/join_roster.h"
#include "transport/shm/membership/group_segment.h"

namespace bedplate {

// Threads: the control thread alone.
class ShmGroupKeeper final : public GroupKeeper {
 public:
  // `members` is the table of the group in `segment`. The table and the segment's memory outlive
  // the keeper.
  ShmGroupKeeper(const GroupSegment& segment, const MembersTable& members) noexcept
      : segment_(segment), members_(members) {}

  void reset_member(uint32_t member) noexcept override { segment_.reset_member(member); }
  void stop_writing(uint32_t member) noexcept override {
    segment_.wrapper(member).acknowledged_epoch.store(kWritesNoMore, std::memory_order_release);
  }
  // Cost: two lines of each member.
  bool is_forgotten(uint32_t member, uint64_t epoch) noexcept override;
  // Cost: a line and a system call for each member number, asleep or not.
  void wake_members() noexcept override;

 private:
  GroupSegment segment_;
  const MembersTable& members_;
};

}  // namespace bedplate
