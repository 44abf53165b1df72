// The open sockets of a packet layer, hashed by their port.
//
// Invariant, checked by is_valid(): each socket is in its slot, and in the chain of its port.
#pragma once

#include <cstdint>
#include <memory>

#include "platform/assert.h"
#include "transport/sockets/datagram_address.h"

namespace bedplate {

class PortDatagramSocket;

// Threads: the shard's. No allocation after construction.
class SocketTable {
 public:
  static constexpr uint32_t kChainCount = 256;

  // Before the seal: it allocates.
  explicit SocketTable(uint32_t count_max);

  // Returns false if the table is full. Requires: the socket is in no table.
  bool insert(PortDatagramSocket& socket) noexcept;
  void remove(PortDatagramSocket& socket) noexcept;

  // The first socket of a chain, which may also have sockets of other ports. link().next is the
  // next.
  PortDatagramSocket* first(uint16_t port) const noexcept { return chains_[port % kChainCount]; }
  // The socket for a datagram from `from` to `to`, which is no group. Prefers a socket that is
  // connected to the sender, then one that is bound to the address. Among sockets that share the
  // port, one sender always gets the same socket. nullptr: none takes it.
  PortDatagramSocket* find(const DatagramAddress& to, const DatagramAddress& from) const noexcept;

  // By slot: 0 to count_max() - 1; nullptr: the slot is free.
  uint32_t count_max() const noexcept { return count_max_; }
  PortDatagramSocket* at(uint32_t slot) const noexcept {
    BP_DCHECK(slot < count_max_);
    return slots_[slot];
  }

  bool is_valid() const noexcept;

 private:
  uint32_t count_max_;
  std::unique_ptr<PortDatagramSocket*[]> slots_;
  PortDatagramSocket* chains_[kChainCount] = {};
};

}  // namespace bedplate
