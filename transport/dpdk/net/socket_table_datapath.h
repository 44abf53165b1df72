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

  // Before the seal: it allocates. Requires: `count_max` is over 0.
  explicit SocketTable(uint32_t count_max);

  // Returns false if the table is full. Requires: the socket has a local port, and is in no table.
  bool insert(PortDatagramSocket& socket) noexcept;
  void remove(PortDatagramSocket& socket) noexcept;

  // Returns the first socket of the chain of `port`, or nullptr. link().next is the next one. The
  // chain may also have sockets of other ports.
  PortDatagramSocket* first(uint16_t port) const noexcept { return chains_[port % kChainCount]; }
  // Returns the socket for a datagram from `from` to `to`, or nullptr if none takes it. Prefers a
  // socket that is connected to the sender, then one that is bound to the address. Among sockets
  // that share the port, one sender gets the same socket until a socket of the port opens or
  // closes. Requires: `to` is not a group.
  PortDatagramSocket* find(const DatagramAddress& to, const DatagramAddress& from) const noexcept;

  // The slots are 0 to count_max() - 1. at() returns nullptr if the slot is free.
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
