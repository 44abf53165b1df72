// How far the connection to a peer is, and what that is called: a counters file is described with
// these words, also by programs that have no verbs linked in.
#pragma once

#include <cstdint>

namespace bedplate {

enum class PeerState : uint8_t {
  kWaiting,  // for it to dial
  kDialing,
  kConnected,
  kGivenUp,  // sends say that it is gone; it is dialed on
  kCutOff,   // it broke the rules
};
const char* to_text(PeerState state) noexcept;  // static

}  // namespace bedplate
