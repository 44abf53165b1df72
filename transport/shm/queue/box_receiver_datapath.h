// The reading end of a fast box that a member has given to one sender.
#pragma once

#include <cstdint>

#include "platform/assert.h"
#include "transport/messages/fast_box_datapath.h"
#include "transport/shm/endpoint/shm_dispatch.h"

namespace bedplate {

// Threads: one.
class BoxReceiver {
 public:
  BoxReceiver() noexcept = default;
  // `index`: among the group's boxes. `received`: the member's count of received messages so far.
  BoxReceiver(const FastBox& box, uint32_t index, uint32_t sender, uint64_t received) noexcept
      : consumer_(box), index_(index), sender_(sender), last_used_(received) {}

  // Takes at most `budget` messages, and delivers them, unless the sender may not write. Returns
  // how many it took.
  uint32_t poll(ShmDispatch& dispatch, uint32_t budget) noexcept {
    SlotHeader header;
    const MessageSlot* slot = consumer_.peek(&header);
    if (slot == nullptr || budget == 0) return 0;
    BP_DCHECK(last_used_ <= dispatch.received_count() && "it only grows");
    ShmEndpoint* from = dispatch.sender_of(sender_);
    uint32_t count = 0;
    do {
      if (from != nullptr) dispatch.handle(*from, header, slot->payload, &consumer_);
      consumer_.consume();
      slot = consumer_.peek(&header);
    } while (++count < budget && slot != nullptr);
    // The sender gives the box back once the ack line says that everything is read. A sender that
    // sends nothing more learns this only if this end acknowledges now.
    if (is_wanted_back_) consumer_.acknowledge();
    last_used_ = dispatch.received_count();
    return count;
  }
  // Delivers everything that the dead sender has left.
  void drain(ShmDispatch& dispatch) noexcept { poll(dispatch, kFastBoxSlotCountMax); }

  uint32_t index() const noexcept { return index_; }
  uint32_t sender() const noexcept { return sender_; }
  // The member's count of received messages when this box last had one.
  uint64_t last_used() const noexcept { return last_used_; }
  bool is_wanted_back() const noexcept { return is_wanted_back_; }
  void set_wanted_back() noexcept {
    BP_DCHECK(!is_wanted_back_ && "its sender is asked once");
    is_wanted_back_ = true;
  }
  // Shows the sender how many messages this end has read.
  void acknowledge() noexcept { consumer_.acknowledge(); }

 private:
  FastBoxConsumer consumer_;
  uint32_t index_ = 0;
  uint32_t sender_ = 0;
  uint64_t last_used_ = 0;
  bool is_wanted_back_ = false;
};

}  // namespace bedplate
