// The reading end of a mesh lane. What was read of it is the peer's (IncomingPeer::lane_tail); this
// is made for one poll, on the thread that polls.
//
// Invariant: nothing that the sender wrote is believed. The count of its words, and the range of
// each, are held against the lane and the region first; a peer whose do not fit is cut off.
//
// Tested by tests/transport/shm/shm_provider_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "transport/shm/mesh_lane_datapath.h"
#include "transport/shm/shm_dispatch.h"

namespace bedplate {

class LaneReceiver {
 public:
  // `region`: the sender's eager region. Cost: a load of the sender's head.
  LaneReceiver(const MeshLane& lane, std::span<const std::byte> region) noexcept
      : lane_(lane), region_(region), head_(lane.head()) {}

  // Whether there are words behind `tail`, how many have been read of it so far.
  bool has_more_than(uint32_t tail) const noexcept { return head_ != tail; }

  // Delivers at most `budget` messages of `from`, whose lane it is. Returns how many.
  uint32_t poll(ShmDispatch& dispatch, ShmEndpoint& from, uint32_t budget) const noexcept {
    uint32_t& tail = from.incoming().lane_tail;
    if (head_ - tail > lane_.capacity()) {
      dispatch.cut_off(from, "more words in its lane than there is room for");
      return 0;
    }
    uint32_t count = 0;
    for (; tail != head_ && count < budget; ++tail, ++count) {
      const LaneWord word = lane_.at(tail);
      const uint64_t bytes = word.kind == SlotKind::kEager ? word.bytes : kInlineBytesMax;
      if (bytes > region_.size() || word.offset > region_.size() - bytes) {
        dispatch.cut_off(from, "a place outside its eager region");
        break;
      }
      const std::byte* body = region_.data() + word.offset;
      if (word.kind == SlotKind::kEager && !from.incoming().is_ignored) {
        dispatch.deliver(from, word.am, {body, word.bytes}, {});
      } else {
        dispatch.handle(from, {word.kind, word.am, word.bytes, from.peer()}, body, nullptr);
      }
    }
    BP_DCHECK(head_ - tail <= lane_.capacity() && "nothing is read before it was written");
    lane_.set_tail(tail);
    return count;
  }

 private:
  MeshLane lane_;
  std::span<const std::byte> region_;
  uint32_t head_;
};

}  // namespace bedplate
