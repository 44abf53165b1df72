// Dials peers: connects, says hello, takes the welcome or the refusal, and backs off.
//
//     dial()          connect()                                          kConnecting
//     say_hello()     it is connected: hello ->                          kAwaitWelcome
//     take_welcome()  <- welcome: the link comes up; ready ->            kLifeline
//     take_refusal()  <- refusal: back_off(), as after any other failure, and a later try; if both
//                     ends have dialed, no back_off(): it waits for the peer's call
//
// docs/verbs.md has the records; LinkAnswerer is the other side. Threads: the connector's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/verbs/connect/link_handshake.h"
#include "transport/verbs/connect/link_parts.h"

namespace bedplate {

class LinkDialer {
 public:
  // Both outlive it.
  LinkDialer(LinkParts& parts, LinkHandshake& handshake) noexcept
      : parts_(parts), handshake_(handshake) {}

  // Keeps the addresses of all links as text. Before the seal: it allocates.
  void open();
  // Dials the link if its back-off is over, its address is known, and it has no talk. Sets
  // is_given_up once the outage has lasted long enough. `was_up`: the link was up at the last look.
  // Requires: the link is wanted, and down.
  void look_after(VerbsLink& link, bool was_up, uint64_t now_ns) noexcept;
  // Says hello, or backs off if our connect() has failed. Requires: it has ended.
  void say_hello(LinkTalk& talk) noexcept;
  // Handles the answer to our hello. Requires: the record of the talk is complete.
  void take_answer(LinkTalk& talk) noexcept;
  // Ends a talk that got no answer, and backs off.
  void give_up(LinkTalk& talk, const char* why) noexcept;

 private:
  void dial(VerbsLink& link, uint64_t now_ns) noexcept;
  void take_welcome(LinkTalk& talk) noexcept;
  void take_refusal(LinkTalk& talk) noexcept;
  // `cure` nullptr: the cure for a peer that does not answer.
  void back_off(VerbsLink& link, const char* why, const char* cure = nullptr) noexcept;

  LinkParts& parts_;
  LinkHandshake& handshake_;
  std::vector<std::string> addresses_;  // of each link, for the log; "": not known
};

}  // namespace bedplate
