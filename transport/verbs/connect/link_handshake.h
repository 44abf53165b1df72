// Brings a link up: the values that it sends to the peer, the values that it adopts from the peer,
// and the states of its queue pair. LinkDialer and LinkAnswerer, which talk with the peer, call it
// in this order:
//
//     begin()               chooses packet number and MTU; they stay the same during the handshake
//     make_record()         this end's values, for the peer
//     commit()              adopts the peer's record; the shard has the link, and takes messages
//     connect_queue_pair()
//     come_up()             the shard may send, too
//
// Threads: the connector's.
#pragma once

#include "platform/result.h"
#include "transport/verbs/connect/link_parts.h"

namespace bedplate {

class LinkHandshake {
 public:
  // `parts` outlives it.
  explicit LinkHandshake(LinkParts& parts) noexcept : parts_(parts) {}

  void begin(VerbsLink& link) noexcept;
  // `link` nullptr: the record has no values of a link, as in a refusal.
  HandshakeRecord make_record(HandshakeKind kind, const VerbsLink* link) const noexcept;
  // Whether the sender's messages have the same shape as ours.
  bool has_our_shape(const HandshakeRecord& record) const noexcept {
    return record.window == parts_.options.window &&
           record.message_bytes == parts_.options.message_bytes;
  }
  // Gives the link to the shard, which takes messages at once, and sends once can_send is set. From
  // then on the link is wanted. Copies `host`. Requires: the record was checked, and its instance
  // is not cut off; the link is the connector's.
  void commit(VerbsLink& link, const HandshakeRecord& record, const char* host) noexcept;
  // Errors (kSystem): the device's. The caller must then break the link.
  Result<void> connect_queue_pair(VerbsLink& link) noexcept;
  // Lets the shard send, and logs the connection. Requires: the link's queue pair is connected; the
  // link has a lifeline.
  void come_up(VerbsLink& link) noexcept;

 private:
  LinkParts& parts_;
};

}  // namespace bedplate
