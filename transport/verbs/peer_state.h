// How far the connection to a peer is, and what that is called: a counters file is described with
// these words, also by programs that have no verbs linked in.
//
// A summary for people, made from the connection's own words when somebody asks
// (VerbsProvider::peer_state, from any thread): nothing is decided by it, and it may be out of date
// when it is read. Senders go by what their endpoint answers; where the device is lost, that is
// kGone in every state.
//
//   waiting, dialing -> connected   the handshake and both queue pairs are there
//   connected -> waiting, dialing   it broke
//   waiting, dialing -> given up    it has taken longer than LinkTiming::give_up_ns
//   given up -> connected           the peer is there after all
//   any -> cut off                  it broke the rules; its next instance begins anew
#pragma once

#include <cstdint>

namespace bedplate {

// The numbers are in counters files: a new state goes to the end.
enum class PeerState : uint8_t {
  kWaiting,    // for it to dial; sends say kAgain
  kDialing,    // from here; sends say kAgain
  kConnected,  // messages can be sent, and the peer has said that it is ready
  kGivenUp,    // sends say kGone; it is dialed on, where its address is known
  kCutOff,     // it broke the rules; sends say kGone once its queue pair is quiesced
};

// The word for it in `stats` and docs/verbs.md. Returns a static text, without a "|" in it; "" for
// a number that is no state.
const char* to_text(PeerState state) noexcept;

}  // namespace bedplate
