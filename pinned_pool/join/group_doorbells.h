// Rings the doorbells of a group after its members table has changed.
//
// A death rings at once. New members and freed parts ring within kRingWithinNs, so that a thousand
// processes that join together do not wake one another a million times.
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

  // Records a change of the group's table: rings at the next ring_due() if urgent, else within
  // kRingWithinNs.
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
