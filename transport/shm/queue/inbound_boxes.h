// The senders that have a fast box of this member's. Receivers decide: they know which senders send
// often, and they alone poll.
//
// A receiver takes a free box by compare-and-swap, and tells the sender through the sender's own
// inbound queue. A box goes back when its sender says so, in a message that comes after everything
// in the box; a receiver that needs the room asks the sender of one that has been idle.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/shm/endpoint/shm_dispatch.h"
#include "transport/shm/queue/box_receiver_datapath.h"

namespace bedplate {

// Threads: the one that polls.
//
// Invariants: 1. This member has no more boxes than it may give away, each is the group's, and its
// sender has an endpoint. (is_valid) Among members that keep to the protocol a sender has one at
// most, of which its endpoint knows, and a box one sender. But the segment has the owners of boxes,
// and the members that have read all that the dead left: any member can spoil these, and with them
// messages.
class InboundBoxes {
 public:
  // All outlive this. Allocates.
  void create(const ShmPlace& place, ShmDispatch& dispatch, const EndpointTable& endpoints,
              ShmCounters& counters);

  uint32_t count() const noexcept { return count_; }
  uint32_t poll(uint32_t budget) noexcept {
    uint32_t count = 0;
    for (uint32_t i = 0; i < count_; ++i) count += boxes_[i].poll(*dispatch_, budget);
    return count;
  }
  // A message of `from` came by the FIFO: after some it gets a box.
  void count_message(ShmEndpoint& from) noexcept {
    if (++from.incoming().heard_count == place_->shape().send_threshold) grant(from);
  }
  // Delivers what `member`, which is dead, has left in its box, and takes that back.
  void drain(uint32_t member) noexcept;

  // Takes the message `what` of `from` about box number `box`, which there is. `came_by_box`: it
  // came through a box. Returns what is wrong with it, or nullptr.
  const char* hear(ShmEndpoint& from, ShmControl what, uint32_t box, bool came_by_box) noexcept;

  bool is_valid() const noexcept;

 private:
  void grant(ShmEndpoint& to) noexcept;
  uint32_t take_free_box(uint32_t sender) noexcept;
  void ask_for_idle_box() noexcept;
  // The sender's side.
  const char* accept(ShmEndpoint& from, uint32_t box) noexcept;
  static void give_back(ShmEndpoint& from, uint32_t box) noexcept;
  const char* close(ShmEndpoint& from, uint32_t box) noexcept;
  void drop(uint32_t place) noexcept;
  void set_free(uint32_t box) noexcept {
    place_->segment().box_owner(box).store(0, std::memory_order_release);
  }

  const ShmPlace* place_ = nullptr;
  ShmDispatch* dispatch_ = nullptr;
  const EndpointTable* endpoints_ = nullptr;
  ShmCounters* counters_ = nullptr;
  uint32_t count_ = 0;
  std::vector<BoxReceiver> boxes_;  // as many as it may give away
};

}  // namespace bedplate
