#include "transport/verbs/peer_state.h"

namespace bedplate {

const char* to_text(PeerState state) noexcept {
  switch (state) {
    case PeerState::kWaiting: return "waiting";
    case PeerState::kDialing: return "dialing";
    case PeerState::kConnected: return "connected";
    case PeerState::kGivenUp: return "gone";
    case PeerState::kCutOff: return "cut off";
  }
  return "";
}

}  // namespace bedplate
