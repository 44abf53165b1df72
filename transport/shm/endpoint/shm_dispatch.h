// Takes the messages that arrive at a member, from any queue: checks each, and hands it to its
// handler.
//
// Data that others have written is read once, checked and then used; a member that writes nonsense
// is cut off.
// Between members that do not trust one another (GroupTraits::has_trust) payloads are copied out of
// the segment before a handler sees them.
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

// Threads: the one that polls.
//
// Invariants: 1. Payloads are copied out where there is no trust, and only there. 2. Peers in the
// list of cut-offs to log are cut off, and are in it once. 3. A member that is said to wait is a
// peer. (is_valid)
class ShmDispatch {
 public:
  struct Options {
    ShmParts& parts;
    EndpointTable& endpoints;
    const MembershipView& view;
    Borrower& borrower;
    const Dispatcher& dispatcher;
    ShmCounters& counters;
    InboundBoxes* boxes;  // nullptr: there are none to be given
  };
  // All that is named outlives this. Allocates.
  void create(const Options& options);

  // The peer that wrote to us; nullptr: the member may not write, or, with lacks_memory(), there is
  // no memory for it now: it will be asked for again.
  ShmEndpoint* sender_of(uint32_t member) noexcept {
    const ShmPlace& place = parts_->outgoing.place;
    if (!place.is_peer(member)) return nullptr;
    ShmEndpoint* endpoint = endpoints_->at(member);
    // The table's generation, not the one that we know of: a place is given out anew only when we
    // have read all of its former member, and the new one may write before we look again.
    if (BP_LIKELY(endpoint != nullptr &&
                  endpoint->generation() == place.members().generation(member))) {
      return endpoint;
    }
    return hear_first(member);
  }
  // Handles one slot. `box`: the box that it came by; nullptr: it came by the FIFO or a lane.
  void handle(ShmEndpoint& from, const SlotHeader& header, const std::byte* body,
              const FastBoxConsumer* box) noexcept;
  // Requires: `from` is not ignored, `payload` lies in its region.
  void deliver(ShmEndpoint& from, uint32_t am, std::span<const std::byte> payload,
               const Loan& loan) noexcept;
  // From here on `peer`, which wrote `what`, is ignored, and hears of it. It is said in the log
  // later.
  void cut_off(ShmEndpoint& peer, const char* what) noexcept;

  uint64_t received_count() const noexcept { return received_count_; }
  bool lacks_memory() const noexcept { return lacks_memory_; }
  void retry_memory() noexcept { lacks_memory_ = false; }

  // News for the log: datapaths only write it down. The provider takes it, and logs it, at the end
  // of a poll.
  bool has_news() const noexcept { return untold_cut_offs_ != nullptr || has_waiter_; }
  // One that was cut off; nullptr: no more.
  const ShmEndpoint* take_cut_off() noexcept;
  // The first of all members that had to wait for memory; UINT32_MAX: there is none, or it was
  // told.
  uint32_t take_waiter() noexcept;

  bool is_valid() const noexcept;

 private:
  // The first message from this member. It may be dead already: its messages count all the same.
  ShmEndpoint* hear_first(uint32_t member) noexcept;
  void handle_eager(ShmEndpoint& from, const SlotHeader& header, const std::byte* body) noexcept;
  void handle_loan(ShmEndpoint& from, const SlotHeader& header, const std::byte* body) noexcept;
  void handle_control(ShmEndpoint& from, const SlotHeader& header, const std::byte* body,
                      bool came_by_box) noexcept;
  // Drops a message of a peer that is ignored; a loan goes back to it.
  void ignore(const ShmEndpoint& from, SlotKind kind, const std::byte* body) noexcept;

  ShmParts* parts_ = nullptr;
  EndpointTable* endpoints_ = nullptr;
  const MembershipView* view_ = nullptr;
  Borrower* borrower_ = nullptr;
  const Dispatcher* dispatcher_ = nullptr;
  ShmCounters* counters_ = nullptr;
  InboundBoxes* boxes_ = nullptr;
  std::vector<std::byte> copied_out_;  // where nobody trusts
  uint64_t received_count_ = 0;
  bool lacks_memory_ = false;  // something waits in its queue for memory
  ShmEndpoint* untold_cut_offs_ = nullptr;
  bool has_waiter_ = false;
  uint32_t first_waiter_ = UINT32_MAX;
};

}  // namespace bedplate
