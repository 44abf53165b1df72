// The state of the connection to a peer, and its name. Programs without verbs use the names, too,
// to describe counters files.
//
// The state is a summary for people: VerbsProvider::peer_state derives it on demand, on any thread.
// No code decides by it, and it may be out of date when it is read. Senders go by the answers of
// their endpoint: once the device is lost, each send says kGone, whatever the state.
//
//   waiting, dialing -> connected   handshake done, both queue pairs connected
//   connected -> waiting, dialing   the connection broke
//   waiting, dialing -> given up    it was down for longer than LinkTiming::give_up_ns
//   given up -> connected           the peer has come back
//   any -> cut off                  the peer broke the protocol; its next instance may connect
#pragma once

#include <cstdint>

namespace bedplate {

// The numbers are in counters files: a new state goes to the end.
enum class PeerState : uint8_t {
  kWaiting,    // for the peer to dial; sends say kAgain
  kDialing,    // this end dials; sends say kAgain
  kConnected,  // messages can be sent, and the peer has said that it is ready
  kGivenUp,    // sends say kGone; dialing goes on if the address is known
  kCutOff,     // the peer broke the protocol; sends say kGone once its queue pair is drained
};

// The word for a state in `stats` and docs/verbs.md. Returns a static text without "|"; "" for a
// number that is no state.
const char* to_text(PeerState state) noexcept;

}  // namespace bedplate
