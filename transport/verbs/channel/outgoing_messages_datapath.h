// Messages to one peer, and the credit of both sides.
//
// A message lies in its slot until the peer says that it has consumed it: after a loss it is sent
// again from there. There are as many slots as a window has messages, and the peer has a receive
// for each. Each message tells the peer how many of its own were consumed here; when it is owed
// half a window of that, and no message goes there, an acknowledgement does. This takes no credit.
//
// A part of VerbsEndpoint. Threads: the shard's.
//
// Invariants: 1. The messages that are kept fit into the window, and each lies in its slot. 2. The
// acknowledgements that it counts are those in the queue. 3. While the connection lives, at most a
// window of the peer's messages is not acknowledged. (is_valid)
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

  // Takes the slots and the acknowledgements from the beginning of `memory`, which is on a cache
  // line. Returns what lies behind them. Called once.
  std::byte* create(std::byte* memory) noexcept;

  // Whether a message can be sent now.
  bool has_credit() const noexcept { return next_ - consumed_ < window_ && channel_.has_room(); }
  // The place of the next message's body.
  std::byte* next_body() const noexcept { return slot(next_) + sizeof(VerbsMessageHeader); }
  // Numbers and lists the next message, whose body is in its place. Requires: credit.
  void send(VerbsMessageKind kind, AmId id, uint32_t bytes) noexcept;

  // Whether the peer has consumed half a window of credit that it was not given back.
  bool owes_acknowledgement() const noexcept { return untold_count() >= window_ / 2; }
  // Lists an acknowledgement, unless so many are on the way that the next follows these.
  void acknowledge() noexcept;
  // The request of one has ended.
  void end_acknowledgement() noexcept {
    BP_DCHECK(acknowledgements_out_ > 0);
    --acknowledgements_out_;
  }
  uint32_t acknowledgements_out() const noexcept { return acknowledgements_out_; }

  // Takes the credit that a message of the peer gives back. Returns its fault, or nullptr.
  const char* take_credit(const VerbsMessageHeader& header) noexcept;
  // Whether the peer had credit for one more message to us.
  bool has_peer_credit() const noexcept { return untold_count() < window_; }

  // A life of the connection begins: messages that the peer has got, or that were for an instance
  // that is no more, are kept no longer. Returns false if the peer claims to have got what was not
  // sent.
  bool begin_life() noexcept;
  // Lists again all that is kept. Once in a life, before anything else is sent.
  void resend() noexcept;
  // The loans of the former life are void: messages that lend or return are sent again empty.
  void void_loans() noexcept;

  bool is_valid() const noexcept;

 private:
  // Messages of the peer that were consumed, which it does not know yet.
  uint64_t untold_count() const noexcept { return channel_.link.received - told_; }
  std::byte* slot(uint64_t number) const noexcept {
    return slots_ + (number & (window_ - 1)) * message_bytes_;
  }
  VerbsMessageHeader& header_of(uint64_t number) const noexcept {
    BP_DCHECK(number - consumed_ <= window_);  // else its slot has another message
    return *reinterpret_cast<VerbsMessageHeader*>(slot(number));
  }
  // A new one, or one that is sent again in another life of the connection.
  void list(VerbsMessageHeader& header) noexcept;

  VerbsParts& parts_;
  ChannelParts& channel_;
  uint64_t window_ = 0;
  uint64_t message_bytes_ = 0;
  std::byte* slots_ = nullptr;                      // window_ * message_bytes_
  VerbsMessageHeader* acknowledgements_ = nullptr;  // kAcknowledgementsMax

  // [consumed_, next_) are kept until the peer has consumed them.
  uint64_t next_ = 0;
  uint64_t consumed_ = 0;
  uint64_t told_ = 0;  // consumed messages of the peer that it knows of
  uint32_t acknowledgements_out_ = 0;
  uint32_t next_acknowledgement_ = 0;
};

inline const char* OutgoingMessages::take_credit(const VerbsMessageHeader& header) noexcept {
  BP_DCHECK(channel_.is_live && next_ - consumed_ <= window_);
  const uint64_t gained = header.consumed - consumed_;
  if (gained > next_ - consumed_) return "an acknowledgement of what was not sent";
  consumed_ = header.consumed;
  // Acknowledgements of less would let it flood the shared queue.
  const bool is_idle = header.kind == VerbsMessageKind::kAcknowledgement &&
                       (gained < window_ / 2 || header.bytes != 0);
  return is_idle ? "an acknowledgement for nothing" : nullptr;
}

}  // namespace bedplate
