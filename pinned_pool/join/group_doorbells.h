// Rings the doorbells of a group after its members table has changed.
//
// A death or a leave rings at once. Other changes (a new member, a freed part) wait: they ring
// together, kRingWithinNs after the first of them. So a thousand processes that join together do
// not wake one another a million times.
#pragma once

#include <cstdint>
#include <vector>

#include "pinned_pool/join/join_roster.h"
#include "platform/thread_owner.h"
#include "platform/units.h"

namespace bedplate {

// Threads: the control thread's.
class GroupDoorbells {
 public:
  static constexpr uint64_t kRingWithinNs = 20 * kNsPerMs;

  // `control` is the control thread. It and the roster outlive this object.
  GroupDoorbells(JoinRoster& roster, const ThreadOwner& control)
      : roster_(roster), control_(control), due_ns_(roster.group_count()) {}

  // Records a change of the group's table. An urgent change rings at the next ring_due(), another
  // one at the first ring_due() after kRingWithinNs.
  void changed(uint32_t group, bool is_urgent) noexcept;
  // Rings for the groups that are due.
  void ring_due() noexcept;
  // The time of the next ring_due(); UINT64_MAX: nothing has changed.
  uint64_t due_ns() const noexcept;

 private:
  JoinRoster& roster_;
  const ThreadOwner& control_;
  std::vector<uint64_t> due_ns_;  // of each group; 0: nothing has changed
};

}  // namespace bedplate
