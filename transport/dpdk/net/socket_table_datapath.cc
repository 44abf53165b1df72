#include "transport/dpdk/net/socket_table_datapath.h"

#include <rte_jhash.h>

#include "platform/assert.h"
#include "transport/dpdk/net/port_datagram_socket.h"

namespace bedplate {
namespace {

uint32_t hash_of(const DatagramAddress& address) noexcept {
  return rte_jhash(address.ip.bytes, address.ip.byte_count(), address.port);
}

}  // namespace

bool SocketTable::insert(PortDatagramSocket& socket) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(socket.local().port != 0);
  for (uint32_t slot = 0; slot < count_max_; ++slot) {
    if (slots_[slot] != nullptr) continue;
    slots_[slot] = &socket;
    socket.link().slot = slot;
    PortDatagramSocket*& chain = chains_[socket.local().port % kChainCount];
    socket.link().next = chain;
    chain = &socket;
    return true;
  }
  return false;
}

void SocketTable::remove(PortDatagramSocket& socket) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(socket.link().slot < count_max_);
  BP_ASSERT(slots_[socket.link().slot] == &socket);
  slots_[socket.link().slot] = nullptr;
  PortDatagramSocket** at = &chains_[socket.local().port % kChainCount];
  while (*at != &socket) {
    BP_ASSERT(*at != nullptr && "it is in the chain of its port");
    at = &(*at)->link().next;
  }
  *at = socket.link().next;
}

PortDatagramSocket* SocketTable::find(const DatagramAddress& to,
                                      const DatagramAddress& from) const noexcept {
  PortDatagramSocket* best = nullptr;
  uint32_t best_score = 0;
  uint32_t tie_count = 0;
  for (PortDatagramSocket* one = first(to.port); one != nullptr; one = one->link().next) {
    const uint32_t score = one->score(to, from);
    if (score == 0 || score < best_score) continue;
    tie_count = score == best_score ? tie_count + 1 : 1;
    best_score = score;
    best = one;
  }
  if (tie_count <= 1) return best;
  uint32_t skip = hash_of(from) % tie_count;
  for (PortDatagramSocket* one = first(to.port); one != nullptr; one = one->link().next) {
    if (one->score(to, from) == best_score && skip-- == 0) return one;
  }
  return best;
}

}  // namespace bedplate
