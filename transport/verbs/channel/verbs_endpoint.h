// The connection to one peer of the verbs provider: its queue pair, its part of the window, its
// loans in both directions. Only the shard that polls touches it; see verbs_provider.h. Its
// contract is that of transport/messages/endpoint.h; this header has the additions, and the
// functions for the provider. VerbsParts has the state that it shares with other endpoints,
// ChannelParts the state that its own parts share.
//
//     am_send: copy the payload into the next slot of the window, list a send
//     am_send_loan: bind a memory window to the block (an export needs none; a block that no window
//       can open is copied first), then send a message that says how to read it
//     start: list a request for each part of a put or get, or one for an atomic
//     flush: list a read of the peer's flush word, which ends after all of these
//     post_batch, in the poll after any of these: invalidate the windows that are given up, send
//       returns, acknowledge if half a window is owed; ring the doorbell once for each list
//
//     receive: a message gives credit back, so slots are free again; then
//       a message -> call its handler
//       a loan    -> call its handler with it; give_back, now or later, makes it due back
//       returns   -> each loan without a window ends; each other loan's window is given up
//       a fault   -> cut the peer off
//     end_requests, up to the one of the completion, in order:
//       the last part of a transfer, an atomic, a flush -> call its completion
//       an invalidation -> the window is free; if it was a loan's: call the loan's completion
//
//     break_life: send nothing more, and drain the queue pair; then end_life: all that is pending
//       ends, once, with kNotDone or kUnknown, and the connector gets the link
//     look_at_link, when it is up again: send the messages again that the peer has not got
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <infiniband/verbs.h>

#include "platform/assert.h"
#include "platform/result.h"
#include "transport/messages/endpoint.h"
#include "transport/sockets/socket_address.h"
#include "transport/verbs/channel/channel_parts.h"
#include "transport/verbs/channel/datagram_queue_datapath.h"
#include "transport/verbs/channel/memory_windows_datapath.h"
#include "transport/verbs/channel/outgoing_messages_datapath.h"
#include "transport/verbs/channel/queue_pair_drain.h"
#include "transport/verbs/channel/remote_operations_datapath.h"
#include "transport/verbs/channel/send_queue_datapath.h"
#include "transport/verbs/channel/verbs_borrower_datapath.h"
#include "transport/verbs/channel/verbs_lender_datapath.h"
#include "transport/verbs/channel/verbs_parts.h"
#include "transport/verbs/connect/verbs_link.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {

struct VerbsEndpointOptions {
  std::string name;                      // of the peer
  std::optional<SocketAddress> address;  // the peer's listener; nothing: the peer dials
  uint16_t index = 0;                    // in the provider; the tag of its requests
  std::byte* memory = nullptr;           // VerbsShape::peer_memory_bytes, cache-line aligned
  ibv_cq* completions = nullptr;
  ibv_srq* receives = nullptr;
};

class VerbsEndpoint final : public Endpoint {
 public:
  // `parts` outlives this. create() follows.
  explicit VerbsEndpoint(VerbsParts& parts) noexcept
      : Endpoint("verbs", parts.limits), parts_(parts) {}
  VerbsEndpoint(const VerbsEndpoint&) = delete;
  VerbsEndpoint& operator=(const VerbsEndpoint&) = delete;
  ~VerbsEndpoint() override;

  SendStatus am_send(AmId id, std::span<const std::byte> payload) noexcept override;
  SendStatus am_send_loan(AmId id, std::span<const std::byte> header, std::span<std::byte> block,
                          Completion* returned) noexcept override;
  SendStatus start(const RemoteOperation& operation) noexcept override;
  SendStatus flush(Completion* done) noexcept override;
  // Uses an export that holds the memory and may be read and written, if there is one: its key
  // stays valid, even after withdraw(). Otherwise binds a memory window, if windows are used and
  // the peer is connected; the peer has MemoryWindows::kExposureCountMax of them. The window's key
  // is void after withdraw(), or after the connection is lost; the peer must learn the key through
  // this endpoint. After withdraw() the peer has lost its access once a later flush has ended or
  // says kGone.
  Result<RemoteMemory> expose(std::span<std::byte> memory) override;
  void withdraw(const RemoteMemory& memory) noexcept override;
  bool has_room() noexcept override {
    BP_DCHECK(parts_.is_own_thread());
    return channel_.may_send ? outgoing_.has_credit()
                             : channel_.status_when_down() == SendStatus::kGone;
  }

  // Invariants, checked around each connection, each batch, and each message of the peer: 1. Each
  // part is valid. 2. If it can send and requests are listed, it is dirty: the next poll posts
  // them.
  bool is_valid() const noexcept;

  // ---- The provider's ----

  // Makes its queue pair, and its windows, if they are used. Before the seal; once.
  // Errors: the device's. After an error it can only be destroyed.
  Result<void> create(const VerbsEndpointOptions& options);

  VerbsLink& link() noexcept { return channel_.link; }
  // The provider ends the drain when it is done, then calls end_life().
  QueuePairDrain& drain() noexcept { return drain_; }
  // Whether messages can be sent.
  bool is_connected() const noexcept { return channel_.may_send; }
  // Whether it is in the dirty list.
  bool is_dirty() const noexcept { return is_dirty_; }

  // Called when any link has changed: takes over the state of this endpoint's link.
  void look_at_link() noexcept;
  // Checks that posted requests end: if none has ended since the last look, posts a read behind
  // them; if none ends for VerbsParts::stall_ns_max, breaks the connection. Called now and then,
  // not in each poll. `now_ns`: monotonic.
  void look_at_progress(uint64_t now_ns) noexcept;
  // Takes a message of `bytes` from its queue pair. `header` is a copy of the first bytes, all zero
  // if there are too few; `body` has the rest. Calls the message's handler, or cuts the peer off.
  // Ignores a message of an earlier connection, which the peer sends again.
  void receive(const VerbsMessageHeader& header, const std::byte* body, uint32_t bytes) noexcept;
  // A receive for a message of the peer ended with `status`, which is not a flush: breaks the
  // connection.
  void receive_failed(ibv_wc_status status) noexcept;
  // A completion with its tag: all requests up to it have ended. A failed one breaks the
  // connection.
  void end_requests(const ibv_wc& completion) noexcept;
  // A loan of the peer was released. A loan of an earlier connection is ignored.
  void give_back(const Loan& loan) noexcept;
  // Posts the listed requests, and what is due: acknowledgement, returns, invalidations. Requires:
  // it is dirty; afterwards it is not.
  void post_batch() noexcept;
  // VerbsProvider::settle, for this peer.
  bool settle() noexcept;
  // The device is gone: the connection ends, with no log line of its own.
  void lose() noexcept { break_life(nullptr, false); }

  // Calls all pending completions, and gives the link to the connector, or marks it as lost.
  // Requires: its drain has ended; if the device is gone, the provider has called lose_device().
  // Errors: the device's, which is gone.
  Result<void> end_life() noexcept;

  // As DatagramQueue::send; while the connection is down kAgain or kGone, without datagrams
  // kRefused.
  SendStatus send_datagram(AmId id, std::span<const std::byte> payload) const noexcept;
  uint32_t datagram_bytes_max() const noexcept;
  // Requires: the link is up.
  DatagramPeer datagram_address() const noexcept;

 private:
  void mark_dirty() noexcept;
  // Whether an acknowledgement, a return or an invalidation is due and not listed yet.
  bool owes() const noexcept {
    return outgoing_.owes_acknowledgement() || borrower_.has_returns() || windows_.has_given_up();
  }

  // Receiving and ending (verbs_endpoint_receive_datapath.cc).
  // Returns the fault of the message, or nullptr.
  const char* take(const VerbsMessageHeader& header, const std::byte* body) noexcept;
  void deliver(AmId id, std::span<const std::byte> payload, const Loan& loan) noexcept;
  void end_request(const PostedRequest& request, uint32_t index, Outcome outcome) noexcept;

  // Connections (verbs_endpoint.cc).
  void begin_life() noexcept;
  void begin_sending() noexcept;
  // Takes the connection down. `is_fault`: the peer broke a rule and is cut off.
  void break_life(const char* why, bool is_fault) noexcept;
  void break_by_device(ibv_wc_status status) noexcept;

  VerbsParts& parts_;
  ChannelParts channel_{parts_};
  MemoryWindows windows_{channel_};  // destroyed before the queue pair (device_quirks.h)
  OutgoingMessages outgoing_{channel_};
  RemoteOperations operations_{channel_};
  VerbsLender lender_{channel_, windows_};
  VerbsBorrower borrower_{channel_, outgoing_};
  QueuePairDrain drain_{channel_};

  bool is_dirty_ = false;     // in the provider's list
  bool has_refused_ = false;  // the peer's device refused a request: later requests were not done
  uint32_t cut_off_count_ = 0;

  // For look_at_progress(): the count that it saw, since when, and whether it has posted a read.
  uint32_t seen_ended_ = 0;
  uint64_t seen_ns_ = 0;
  bool is_kicked_ = false;
};

}  // namespace bedplate
