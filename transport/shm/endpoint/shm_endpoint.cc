#include "transport/shm/endpoint/shm_endpoint.h"

namespace bedplate {

Result<void> ShmEndpoint::open(uint64_t generation, bool is_open) noexcept {
  BP_DCHECK(path_.generation() != generation);
  path_.open(generation, is_open);
  incoming_ = {};
  copy_.close();
  if (!is_open || parts_.single_copy == nullptr) return {};
  return copy_.open(parts_.outgoing.group, *parts_.single_copy, peer());
}

Result<RemoteMemory> ShmEndpoint::expose(std::span<std::byte> memory) {
  BP_DREQUIRE_THREAD(is_own_thread(), "Endpoint::expose");
  return parts_.exposures.expose(peer_generation(), memory);
}

void ShmEndpoint::withdraw(const RemoteMemory& memory) noexcept {
  BP_DREQUIRE_THREAD(is_own_thread(), "Endpoint::withdraw");
  parts_.exposures.withdraw(peer(), memory);
}

}  // namespace bedplate
