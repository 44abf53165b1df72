// Answers peers that connect: takes their call, checks their hello, and welcomes or refuses them.
//
//     take_caller(), take_call()  a stranger                            kAwaitHello
//     take_hello()     <- hello: checked, and its link is known         kHeld
//     answer_hello()   once the link is down: it comes up; welcome ->   kAwaitReady
//     take_ready()     <- ready: the link can send, too                 kLifeline
//
// A peer that breaks the rules in a handshake is refused, and logged once for each host. If both
// ends have sent a hello, the call of the lesser name goes on. docs/verbs.md has the records;
// LinkDialer is the other side. Threads: the connector's.
#pragma once

#include <cstdint>

#include "platform/file.h"
#include "platform/log_limit.h"
#include "transport/verbs/connect/link_handshake.h"
#include "transport/verbs/connect/link_parts.h"

namespace bedplate {

class LinkAnswerer {
 public:
  // Both outlive it.
  LinkAnswerer(LinkParts& parts, LinkHandshake& handshake) noexcept
      : parts_(parts), handshake_(handshake) {}

  // Begin a talk with a new caller: over a socket, and still without a hello; or by the RDMA
  // connection manager, with the hello in `event`. Hang up if no talk is free.
  void take_caller(Fd socket) noexcept;
  void take_call(const ConnectionManager::Event& event) noexcept;
  // Drops the strangers (talks without a hello) that have waited longest, until `count_max` are
  // left.
  void drop_strangers(uint32_t count_max) noexcept;
  // Ends a talk that has not said hello.
  void give_up(LinkTalk& stranger) noexcept;

  // Handle the record of the talk. They may drop the talk. Requires: the record is complete.
  void take_hello(LinkTalk& talk) noexcept;
  void take_ready(LinkTalk& talk) noexcept;
  // Answers a held talk, if its link is down. If the link is up, asks the shard to take it down,
  // and the talk stays held: a peer that dials has lost the old connection, even if this end still
  // has it. May drop the talk.
  void answer_hello(LinkTalk& talk) noexcept;
  // Handles a held talk whose socket is readable: refuses it if there are bytes, drops it if the
  // peer has hung up. LinkTalks::read would overwrite the hello, which is still needed.
  void read_held(LinkTalk& talk) noexcept;

  // Whether a held talk has a good hello of its link, and has read nothing after it.
  bool is_held_well(const LinkTalk& talk) const noexcept;

 private:
  void refuse(LinkTalk& talk, Refusal why) noexcept;

  LinkParts& parts_;
  LinkHandshake& handshake_;
  OncePerSecond device_errors_;
};

}  // namespace bedplate
