#include "transport/verbs/connect/verbs_link.h"

#include <atomic>

#include "transport/verbs/verbs_wire.h"

namespace bedplate {

bool VerbsLink::is_valid() const noexcept {
  const LinkState now = state.load(std::memory_order_acquire);
  if (now == LinkState::kDown && queue_pair.number() == 0) return false;
  if (can_send.load(std::memory_order_acquire) && is_connecting.load(std::memory_order_acquire)) {
    return false;
  }
  if (now != LinkState::kUp) return true;
  if (peer_instance == 0 || !is_wanted.load(std::memory_order_relaxed)) return false;
  if (packet_number > kPacketNumberMask || peer.packet_number > kPacketNumberMask) return false;
  return is_mtu(mtu) && is_mtu(peer.mtu) && peer.number <= kPacketNumberMask && peer.reads_max > 0;
}

}  // namespace bedplate
