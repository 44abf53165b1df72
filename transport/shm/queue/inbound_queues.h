// The interface of the queues that lead to a member: each kind of group has a class for all queues
// from which its members receive (inbox.h).
#pragma once

#include <concepts>
#include <cstdint>

#include "transport/shm/endpoint/endpoint_table.h"
#include "transport/shm/endpoint/group_view.h"
#include "transport/shm/endpoint/shm_dispatch.h"
#include "transport/shm/membership/membership_view.h"

namespace bedplate {

class InboundBoxes;

// The parts that the queues use; they outlive the queues.
struct InboxParts {
  const GroupView& group;
  const MembershipView& view;
  const EndpointTable& endpoints;
  ShmDispatch& dispatch;
  ShmCounters& counters;
};

// Threads: the polling one.
//
// A dead member can have left at most one lap of each queue. A member that only said that it leaves
// may still be writing.
template <typename Queues>
concept InboundQueues = requires(Queues queues, const Queues& seen, const InboxParts& parts,
                                 uint32_t budget, uint32_t member) {
  queues.create(parts);  // allocates; uses only `group` of the parts yet
  // Delivers arrived messages, at most `budget` from each queue. Returns how many, and one more if
  // the shard must stay awake.
  { queues.poll(budget) }
  noexcept->std::same_as<uint32_t>;
  // Called when a new member has this number.
  { queues.welcome(member) }
  noexcept;
  // Delivers the messages that a dead member has left outside the FIFO. The messages that it has
  // left in the FIFO may come before or after these.
  { queues.drain(member) }
  noexcept;
  // mark_drain() notes how far the member must read to have all messages of members that are dead
  // now. is_drained() tells whether it has read that far.
  { queues.mark_drain() }
  noexcept;
  { seen.is_drained() }
  noexcept->std::same_as<bool>;
  // Called when no store of the member can come any more.
  { queues.forget_writer(member) }
  noexcept;
  // The part that gives boxes; nullptr: groups of this kind have no boxes to give.
  { queues.boxes() }
  noexcept->std::same_as<InboundBoxes*>;
  // How many inbound boxes it polls now.
  { seen.box_count() }
  noexcept->std::same_as<uint32_t>;
};

}  // namespace bedplate
