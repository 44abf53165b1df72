// The state of the connection to a peer, and its name. Programs without verbs use the names, too,
// to describe counters files.
//
// The state is a summary for people: VerbsProvider::peer_state derives it on demand, on any thread.
// No code decides by the state, and it may be out of date when it is read. A connection that has
// just broken counts as connected until its queue pair is drained. Senders go by the answers of
// their endpoint: once the device is lost, each send returns kGone, whatever the state.
//
//   waiting, dialing -> connected   the handshake is done
//   connected -> waiting, dialing   the connection broke
//   waiting, dialing -> given up    it was down for longer than LinkTiming::give_up_ns ("gone")
//   given up -> connected           the peer has come back
//   any -> cut off                  the peer broke the protocol
//   cut off -> connected            the peer's next instance has connected
#pragma once

#include <cstdint>

#include "platform/version.h"

namespace bedplate {

// The numbers are in counters files: a new state goes to the end.
enum class PeerState : uint8_t {
  kWaiting,    // for the peer to dial, or for connect(); sends return kAgain
  kDialing,    // this end dials; sends return kAgain
  kConnected,  // messages can be sent
  kGivenUp,    // sends return kGone; dialing goes on if the address is known
  kCutOff,     // the peer broke the protocol; sends return kGone
};

// The word for a state in `stats` and docs/verbs.md. Returns a static text without "|"; "" for a
// number that is no state.
const char* to_text(PeerState state) noexcept;

}  // namespace bedplate
