#include "platform/assert.h"
#include "transport/dpdk/net/port_datagram_socket.h"
#include "transport/dpdk/net/socket_table_datapath.h"

namespace bedplate {

SocketTable::SocketTable(uint32_t count_max)
    : count_max_(count_max), slots_(std::make_unique<PortDatagramSocket*[]>(count_max)) {
  BP_ASSERT(count_max > 0);
}

bool SocketTable::is_valid() const noexcept {
  uint32_t count = 0;
  for (uint32_t slot = 0; slot < count_max_; ++slot) {
    if (slots_[slot] == nullptr) continue;
    if (slots_[slot]->link().slot != slot) return false;
    ++count;
  }
  for (uint32_t i = 0; i < kChainCount; ++i) {
    for (PortDatagramSocket* one = chains_[i]; one != nullptr; one = one->link().next) {
      if (one->local().port % kChainCount != i || slots_[one->link().slot] != one) return false;
      if (count-- == 0) return false;
    }
  }
  return count == 0;
}

}  // namespace bedplate
