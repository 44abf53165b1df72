// The fast boxes that this member has given to senders. Receivers decide: they know which senders
// send often, and they alone poll.
//
// A receiver takes a free box by compare-and-swap, and tells the sender through the sender's own
// inbound queue. The sender gives a box back by a message through the FIFO, after the receiver has
// read everything in the box. A receiver that needs boxes asks the sender of an idle box.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/shm/endpoint/shm_dispatch.h"
#include "transport/shm/queue/box_receiver_datapath.h"

namespace bedplate {

// Threads: the polling one.
//
// Invariants: 1. This member has at most as many boxes as it may give away, each is one of the
// group's, and its sender has an endpoint. (is_valid) If members keep to the protocol, a sender has
// at most one box, which its endpoint knows, and a box has one sender. But the owners of boxes, and
// the acknowledgements of deaths, lie in the segment: any member can spoil these, and with them
// messages.
class InboundBoxes {
 public:
  // All arguments outlive this. Allocates.
  void create(const GroupView& group, ShmDispatch& dispatch, const EndpointTable& endpoints,
              ShmCounters& counters);

  uint32_t count() const noexcept { return count_; }
  // Delivers at most `budget` messages from each box. Returns how many in all.
  uint32_t poll(uint32_t budget) noexcept {
    uint32_t count = 0;
    for (uint32_t i = 0; i < count_; ++i) count += boxes_[i].poll(*dispatch_, budget);
    return count;
  }
  // Counts a message of `from` through the FIFO; at the threshold the sender gets a box.
  void count_message(ShmEndpoint& from) noexcept {
    if (++from.incoming().heard_count == group_->shape().send_threshold) grant(from);
  }
  // Delivers the messages that the dead `member` has left in its box, and takes the box back. If
  // the member may still write, nobody gets that box before reset_member().
  void drain(uint32_t member) noexcept;

  // Handles the message `what` of `from` about a box, in either role: as the receiver that gives
  // it, or as the sender that uses it. `came_by_box`: the message came through a box. Returns what
  // is wrong with the message, static text, or nullptr. Requires: the group has box number `box`.
  const char* hear(ShmEndpoint& from, ShmControl what, uint32_t box, bool came_by_box) noexcept;

  bool is_valid() const noexcept;

 private:
  void grant(ShmEndpoint& to) noexcept;
  uint32_t take_free_box(uint32_t sender) noexcept;
  void ask_for_idle_box() noexcept;
  // The sender's side.
  const char* accept(ShmEndpoint& from, uint32_t box) noexcept;
  static void give_back(ShmEndpoint& from, uint32_t box) noexcept;
  // The receiver's side again.
  const char* close(ShmEndpoint& from, uint32_t box) noexcept;
  void drop(uint32_t index) noexcept;
  void set_free(uint32_t box) noexcept {
    group_->segment().box_owner(box).store(0, std::memory_order_release);
  }

  const GroupView* group_ = nullptr;
  ShmDispatch* dispatch_ = nullptr;
  const EndpointTable* endpoints_ = nullptr;
  ShmCounters* counters_ = nullptr;
  uint32_t count_ = 0;
  std::vector<BoxReceiver> boxes_;  // as many as it may give away
};

}  // namespace bedplate
