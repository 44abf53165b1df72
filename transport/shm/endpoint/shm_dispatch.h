// Takes the messages that arrive at a member, from any queue, checks each, and calls its handler.
//
// Data written by others is read once, checked and then used; a member that writes something
// malformed is cut off. In a group without trust (GroupTraits::has_trust) payloads are copied out
// of the segment before a handler sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/messages/fast_box_datapath.h"
#include "transport/messages/message_slot.h"
#include "transport/messages/provider.h"
#include "transport/shm/endpoint/borrower.h"
#include "transport/shm/endpoint/endpoint_table.h"
#include "transport/shm/endpoint/shm_counters.h"

namespace bedplate {

class InboundBoxes;

// Threads: the polling one.
//
// Invariants: 1. Payloads are copied out if and only if the group has no trust. 2. Peers in the
// list of cut-offs to log are cut off, and are in it once. 3. The member that waits for memory, if
// any, is a peer. (is_valid)
class ShmDispatch {
 public:
  struct Options {
    ShmParts& parts;
    EndpointTable& endpoints;
    const MembershipView& view;
    Borrower& borrower;
    const Dispatcher& dispatcher;
    ShmCounters& counters;
    InboundBoxes* boxes;  // nullptr: this group has no boxes
  };
  // Everything in `options` outlives this. Allocates.
  void create(const Options& options);

  // Returns the endpoint of the peer that wrote to this member. nullptr: that member may not write;
  // or, if lacks_memory(), there is no memory for its endpoint now, and the next poll asks again.
  ShmEndpoint* sender_of(uint32_t member) noexcept {
    const GroupView& group = parts_->outgoing.group;
    if (!group.is_peer(member)) return nullptr;
    ShmEndpoint* endpoint = endpoints_->at(member);
    // Compares with the table's generation, not with the last one seen. A number gets a new member
    // only when this member has read everything of the former one, and the new one may write before
    // this member looks at the table again.
    if (BP_LIKELY(endpoint != nullptr &&
                  endpoint->generation() == group.members().generation(member))) {
      return endpoint;
    }
    return hear_first(member);
  }
  // Handles one slot. `box`: the box that it arrived in; nullptr: the FIFO or a lane.
  void handle(ShmEndpoint& from, const SlotHeader& header, const std::byte* body,
              const FastBoxConsumer* box) noexcept;
  // Counts the message, and calls its handler. If it has none, the loan goes back. Requires: `from`
  // is not ignored; `payload` was checked to lie in the slot, the box or its eager region.
  void deliver(ShmEndpoint& from, uint32_t am, std::span<const std::byte> payload,
               const Loan& loan) noexcept;
  // Cuts off `peer`, which wrote `what` (static text). From here on its messages are ignored, its
  // path is closed, and it learns that. The log entry comes later.
  void cut_off(ShmEndpoint& peer, const char* what) noexcept;

  uint64_t received_count() const noexcept { return received_count_; }
  // Whether a message has waited for memory since the last retry_memory().
  bool lacks_memory() const noexcept { return lacks_memory_; }
  void retry_memory() noexcept { lacks_memory_ = false; }

  // Entries for the log. Datapaths only record them; the provider takes and logs them at the end of
  // a poll.
  bool has_news() const noexcept { return untold_cut_offs_ != nullptr || has_waiter_; }
  // A peer that was cut off; nullptr: no more.
  const ShmEndpoint* take_cut_off() noexcept;
  // The first member ever that had to wait for memory; UINT32_MAX: none, or it was taken.
  uint32_t take_waiter() noexcept;

  bool is_valid() const noexcept;

 private:
  // Makes the endpoint at the member's first message. The member may be dead already: its messages
  // still count. Returns as sender_of() does.
  ShmEndpoint* hear_first(uint32_t member) noexcept;
  void handle_eager(ShmEndpoint& from, const SlotHeader& header, const std::byte* body) noexcept;
  void handle_loan(ShmEndpoint& from, const SlotHeader& header, const std::byte* body) noexcept;
  void handle_control(ShmEndpoint& from, const SlotHeader& header, const std::byte* body,
                      bool came_by_box) noexcept;
  // Drops a message of an ignored peer; a loan goes back to it.
  void ignore(const ShmEndpoint& from, SlotKind kind, const std::byte* body) noexcept;

  ShmParts* parts_ = nullptr;
  EndpointTable* endpoints_ = nullptr;
  const MembershipView* view_ = nullptr;
  Borrower* borrower_ = nullptr;
  const Dispatcher* dispatcher_ = nullptr;
  ShmCounters* counters_ = nullptr;
  InboundBoxes* boxes_ = nullptr;
  std::vector<std::byte> copied_out_;  // in groups without trust
  uint64_t received_count_ = 0;
  bool lacks_memory_ = false;  // a message waits in its queue for memory
  ShmEndpoint* untold_cut_offs_ = nullptr;
  bool has_waiter_ = false;
  uint32_t first_waiter_ = UINT32_MAX;
};

}  // namespace bedplate
