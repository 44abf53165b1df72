// The state of the connection to a peer, and its name. Counters files are described with these
// names, also by programs that have no verbs linked in.
//
// It is a summary for people, made from the connection's own state when somebody asks
// (VerbsProvider::peer_state, from any thread). No code decides by it, and it may be out of date
// when it is read. Senders go by their endpoint's answers: these are kGone in every state once the
// device is lost.
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
  kGivenUp,    // sends say kGone; it is dialed on, if its address is known
  kCutOff,     // it broke the rules; sends say kGone once its queue pair is quiesced
};

// The word for it in `stats` and docs/verbs.md. Returns a static text, without a "|" in it; "" for
// a number that is no state.
const char* to_text(PeerState state) noexcept;

}  // namespace bedplate
