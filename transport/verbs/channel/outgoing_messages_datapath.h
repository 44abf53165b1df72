// Messages to one peer, and the credit of both sides.
//
// A message stays in its slot until the peer says that it has consumed it: after a lost connection
// it is sent again from there. There is one slot for each message of the window, and the peer has
// one receive for each. Each message carries the count of the peer's messages that were consumed
// here, which is credit. When half a window of credit is owed and no message goes to the peer, an
// acknowledgement carries the count. An acknowledgement takes no credit.
//
// A part of VerbsEndpoint. Threads: the shard's.
//
// Invariants: 1. The kept messages fit into the window, and each is in its slot.
// 2. acknowledgements_out_ counts the acknowledgements in the queue. 3. While the connection
// lives, at most a window of the peer's messages is unacknowledged. (is_valid)
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/assert.h"
#include "transport/messages/endpoint.h"
#include "transport/verbs/channel/channel_parts.h"
#include "transport/verbs/channel/verbs_parts.h"
#include "transport/verbs/channel/verbs_shape.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {

class OutgoingMessages {
 public:
  // `channel` outlives this. create() follows.
  explicit OutgoingMessages(ChannelParts& channel) noexcept
      : parts_(channel.shared), channel_(channel) {}

  // Takes the slots and the acknowledgements from the beginning of `memory`, which is cache-line
  // aligned. Returns the address behind them. Called once.
  std::byte* create(std::byte* memory) noexcept;

  // Whether a message can be sent now.
  bool has_credit() const noexcept { return next_ - consumed_ < window_ && channel_.has_room(); }
  // The body of the next message, in its slot.
  std::byte* next_body() const noexcept { return slot(next_) + sizeof(VerbsMessageHeader); }
  // Numbers and lists the next message; its body of `bytes` is already in its slot. Requires:
  // has_credit(), and the connection may send.
  void send(VerbsMessageKind kind, AmId id, uint32_t bytes) noexcept;

  // Whether half a window of credit is owed to the peer.
  bool owes_acknowledgement() const noexcept { return untold_count() >= window_ / 2; }
  // Lists an acknowledgement. Does nothing while kAcknowledgementsMax are under way, or the queue
  // is full: the credit stays owed.
  void acknowledge() noexcept;
  // The request of an acknowledgement has ended.
  void end_acknowledgement() noexcept {
    BP_DCHECK(acknowledgements_out_ > 0);
    --acknowledgements_out_;
  }
  uint32_t acknowledgements_out() const noexcept { return acknowledgements_out_; }

  // Takes the credit in a message of the peer. Returns the fault of the message, or nullptr.
  const char* take_credit(const VerbsMessageHeader& header) noexcept;
  // Whether the peer has credit for one more message to us.
  bool has_peer_credit() const noexcept { return untold_count() < window_; }

  // A new connection begins. Drops the kept messages that the peer has received; counts as lost,
  // and drops, those for an instance that has ended. Returns false if the peer claims to have
  // received messages that were not sent.
  bool begin_life() noexcept;
  // Lists all kept messages again. Called once in a connection, before anything else is sent.
  void resend() noexcept;
  // Voids the loans of the earlier connection: messages that lend or return are sent again empty.
  void void_loans() noexcept;

  bool is_valid() const noexcept;

 private:
  // How many consumed messages of the peer it has not been told of yet.
  uint64_t untold_count() const noexcept { return channel_.link.received - told_; }
  std::byte* slot(uint64_t number) const noexcept {
    return slots_ + (number & (window_ - 1)) * message_bytes_;
  }
  VerbsMessageHeader& header_of(uint64_t number) const noexcept {
    BP_DCHECK(number - consumed_ <= window_);  // else its slot has another message
    return *reinterpret_cast<VerbsMessageHeader*>(slot(number));
  }
  // Lists a new message, or a kept one that is sent again.
  void list(VerbsMessageHeader& header) noexcept;

  VerbsParts& parts_;
  ChannelParts& channel_;
  uint64_t window_ = 0;
  uint64_t message_bytes_ = 0;
  std::byte* slots_ = nullptr;                      // window_ * message_bytes_
  VerbsMessageHeader* acknowledgements_ = nullptr;  // kAcknowledgementsMax

  // The messages [consumed_, next_) are kept until the peer says that it has consumed them.
  uint64_t next_ = 0;
  uint64_t consumed_ = 0;
  uint64_t told_ = 0;  // consumed messages of the peer that it has been told of
  uint32_t acknowledgements_out_ = 0;
  uint32_t next_acknowledgement_ = 0;
};

inline const char* OutgoingMessages::take_credit(const VerbsMessageHeader& header) noexcept {
  BP_DCHECK(channel_.is_live && next_ - consumed_ <= window_);
  const uint64_t gained = header.consumed - consumed_;
  if (gained > next_ - consumed_) return "an acknowledgement of what was not sent";
  consumed_ = header.consumed;
  // An acknowledgement of less credit would let the peer flood the shared queue.
  const bool is_idle = header.kind == VerbsMessageKind::kAcknowledgement &&
                       (gained < window_ / 2 || header.bytes != 0);
  return is_idle ? "an acknowledgement for nothing" : nullptr;
}

}  // namespace bedplate
