// Brings a link up: the values that it tells its peer, the peer's that it adopts, and the steps of
// its queue pair. LinkDialer and LinkAnswerer, which talk with the peer, do so in this order:
//
//     begin()               chooses packet number and MTU; they stay the same during the handshake
//     make_record()         our side, as the peer is told
//     commit()              adopts the peer's record; the shard has the link, and takes messages
//     connect_queue_pair()
//     come_up()             the shard sends, too
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
  // `link` nullptr: a record that is about none.
  HandshakeRecord make_record(HandshakeKind kind, const VerbsLink* link) const noexcept;
  // Whether messages of the record's sender have the same shape as ours.
  bool has_our_shape(const HandshakeRecord& record) const noexcept {
    return record.window == parts_.options.window &&
           record.message_bytes == parts_.options.message_bytes;
  }
  // Gives the link to the shard, which takes messages at once, and sends once can_send is set.
  // Requires: the record was checked; the link is the connector's.
  void commit(VerbsLink& link, const HandshakeRecord& record, const char* host) noexcept;
  // Errors (kSystem): the device's. The link has to break then.
  Result<void> connect_queue_pair(VerbsLink& link) noexcept;
  // Requires: its queue pair is connected; it has a lifeline.
  void come_up(VerbsLink& link) noexcept;

 private:
  LinkParts& parts_;
};

}  // namespace bedplate
