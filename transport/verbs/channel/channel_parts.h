// State that the parts of one VerbsEndpoint share: the link, the send queue, and the state of the
// connection. The endpoint owns it. VerbsParts has the state that all endpoints share.
//
// Only the endpoint changes is_live, may_send and is_cut_off; only QueuePairDrain changes
// is_draining. Each part lists requests in the queue, and the endpoint posts them; only the drain
// posts its marker itself.
//
// Invariants: 1. may_send implies is_live. A live connection neither drains nor is cut off. The
// shard owns the link while the connection is live or drains, and a link that drains must break. 2.
// The queue is valid. (is_valid)
//
// Threads: the shard's; the link has its own contract.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/assert.h"
#include "transport/messages/endpoint.h"
#include "transport/verbs/channel/send_queue_datapath.h"
#include "transport/verbs/channel/verbs_parts.h"
#include "transport/verbs/channel/verbs_shape.h"
#include "transport/verbs/connect/verbs_link.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {

struct ChannelParts {
  // Requests that has_room() leaves free, for acknowledgements and for recovery: the marker, and
  // the read that restarts a stopped device.
  static constexpr uint32_t kRequestsKept = kAcknowledgementsMax + 2;

  // `parts` outlives this.
  explicit ChannelParts(VerbsParts& parts) noexcept : shared(parts) {}

  VerbsParts& shared;
  VerbsLink link;
  SendQueue queue;
  bool is_live = false;      // the shard owns the link, and it is up
  bool may_send = false;     // messages and operations may be sent
  bool is_draining = false;  // it broke; requests or receives may still be under way
  bool is_cut_off = false;   // it broke because the peer broke the protocol

  // Whether there is space for one more request.
  bool has_room() const noexcept { return queue.room() > kRequestsKept; }

  // Returns kAgain or kGone. Never returns kGone while the queue pair drains, because the peer may
  // reach lent or exposed memory until the drain ends. Requires: !may_send.
  SendStatus status_when_down() const noexcept {
    BP_DCHECK(!may_send);
    const bool is_gone = !is_draining && (is_cut_off || shared.is_lost ||
                                          link.is_given_up.load(std::memory_order_acquire));
    return is_gone ? SendStatus::kGone : SendStatus::kAgain;
  }

  // Whether `memory` gives `rights`, and its key is of the peer's present instance or of this
  // connection.
  bool may_reach(const RemoteMemory& memory, RemoteRights rights) const noexcept {
    return (rights_of(memory) & rights) == rights &&
           (is_reach(memory, Reach::kExport, static_cast<uint32_t>(link.peer_instance)) ||
            is_reach(memory, Reach::kConnection, link.peer.packet_number));
  }

  // How many requests of this kind have not ended. For checks. Cost: a walk of the queue.
  uint32_t count_of(RequestKind kind) const noexcept {
    return queue.count_of([kind](const PostedRequest& request) { return request.kind == kind; });
  }

  bool is_valid() const noexcept {
    if ((may_send && !is_live) || (is_live && (is_draining || is_cut_off))) return false;
    const bool is_up = link.state.load(std::memory_order_relaxed) == LinkState::kUp;
    if ((is_live || is_draining) && !is_up) return false;
    if (is_draining && !link.must_break.load(std::memory_order_relaxed)) return false;
    return queue.is_valid();
  }
};

}  // namespace bedplate
