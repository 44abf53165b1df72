// Answers peers that connect: takes their call, checks their hello, and welcomes or refuses them.
//
//     take_caller(), take_call()  a stranger                            kAwaitHello
//     take_hello()     <- hello: checked, and its link is known         kHeld
//     answer_hello()   once the link is down: it comes up; welcome ->   kAwaitReady
//     take_ready()     <- ready: the link can send, too                 kLifeline
//
// A handshake that breaks the rules is refused, and logged once for each host. If both sides dial
// at once, one of the two calls goes on: that of the lesser name. docs/verbs.md has the records;
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

  // Strangers: over a socket, and by the RDMA connection manager, with a hello.
  void take_caller(Fd socket) noexcept;
  void take_call(const ConnectionManager::Event& event) noexcept;
  // Makes room among talks that have not said hello: drops those that have waited longest.
  void drop_strangers(uint32_t count_max) noexcept;
  // Ends a talk that has not said hello.
  void give_up(LinkTalk& stranger) noexcept;

  // The talk's record came.
  void take_hello(LinkTalk& talk) noexcept;
  void take_ready(LinkTalk& talk) noexcept;
  // Answers a held talk once its link is ours: a peer that dials has lost the connection that we
  // may still have.
  void answer_hello(LinkTalk& talk) noexcept;
  // The socket of a held talk has something to read: nothing may be read over its hello, which is
  // still needed.
  void read_held(LinkTalk& talk) noexcept;

  // Whether a held talk has a good hello of its link, and has read nothing behind it.
  bool is_held_well(const LinkTalk& talk) const noexcept;

 private:
  void refuse(LinkTalk& talk, Refusal why) noexcept;

  LinkParts& parts_;
  LinkHandshake& handshake_;
  OncePerSecond device_errors_;
};

}  // namespace bedplate
