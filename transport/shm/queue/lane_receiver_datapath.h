// The reading end of a mesh lane, with its position.
//
// Invariant: this end believes nothing that the sender wrote. It counts the sender's words from its
// own tail, not from the tail in the segment, and checks the count against the lane's capacity. It
// checks the range of each word against the sender's region. It cuts off a peer that fails a check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "transport/shm/endpoint/group_view.h"
#include "transport/shm/endpoint/shm_dispatch.h"
#include "transport/shm/queue/mesh_lane_datapath.h"

namespace bedplate {

// Threads: the polling one. A LaneReceiver does not store its lane's address: a member has a
// LaneReceiver for each other member, and in a large group most members never send to it.
class LaneReceiver {
 public:
  // Delivers at most `budget` messages of `sender`, whose lane this is. Returns how many. Cost, if
  // there are none: a load of the sender's head, and one of its generation.
  uint32_t poll(const GroupView& group, uint32_t sender, ShmDispatch& dispatch,
                uint32_t budget) noexcept {
    const MeshLane lane = group.segment().lane(group.self(), sender);
    const uint32_t head = lane.head();
    // A lane is reset before another member gets its sender's number.
    if (const uint64_t generation = group.members().generation(sender);
        BP_UNLIKELY(generation != generation_)) {
      generation_ = generation;
      tail_ = 0;
    }
    if (head == tail_) return 0;
    ShmEndpoint* from = dispatch.sender_of(sender);
    return from != nullptr
               ? take(lane, head, group.eager_region_of(sender), *from, dispatch, budget)
               : 0;
  }

  // Whether this lane was ever polled with a sender.
  bool is_begun() const noexcept { return generation_ != 0; }
  bool is_valid() const noexcept { return is_begun() || tail_ == 0; }

 private:
  // `region`: the sender's eager region, which holds the words' payloads.
  uint32_t take(const MeshLane& lane, uint32_t head, std::span<const std::byte> region,
                ShmEndpoint& from, ShmDispatch& dispatch, uint32_t budget) noexcept {
    if (head - tail_ > lane.capacity()) {
      dispatch.cut_off(from, "more words in its lane than there is room for");
      return 0;
    }
    uint32_t count = 0;
    for (; tail_ != head && count < budget; ++tail_, ++count) {
      const LaneWord word = lane.at(tail_);
      const uint64_t bytes = word.kind == SlotKind::kEager ? word.bytes : kInlineBytesMax;
      if (bytes > region.size() || word.offset > region.size() - bytes) {
        dispatch.cut_off(from, "a payload outside its eager region");
        break;
      }
      const std::byte* body = region.data() + word.offset;
      if (word.kind == SlotKind::kEager && !from.incoming().is_ignored) {
        dispatch.deliver(from, word.am, {body, word.bytes}, {});
      } else {
        dispatch.handle(from, {word.kind, word.am, word.bytes, from.peer()}, body, nullptr);
      }
    }
    BP_DCHECK(head - tail_ <= lane.capacity() && "nothing is read before it was written");
    lane.set_tail(tail_);
    return count;
  }

  uint64_t generation_ = 0;  // the sender's, at which tail_ applies
  uint32_t tail_ = 0;        // the number of words read
};

}  // namespace bedplate
