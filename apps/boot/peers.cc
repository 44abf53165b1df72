#include "apps/boot/peers.h"

// verbs_peers.cc defines it.
extern "C" [[gnu::weak]] const bedplate::PeersPart bedplate_peers_part;

namespace bedplate {

const PeersPart* peers_part() noexcept { return &bedplate_peers_part; }

std::unique_ptr<Peers> make_peers() {
  const PeersPart* part = peers_part();
  return part == nullptr ? std::make_unique<Peers>() : part->make();
}

}  // namespace bedplate
