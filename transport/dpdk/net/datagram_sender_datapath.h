// Makes the frame of a datagram. The frame refers to the bytes if they are in a buffer of a port
// and this port sends several segments; otherwise it gets a copy. Computes the UDP checksum if the
// port does not.
//
// The checksum of the last bytes sent by reference is cached for one round, because these bytes may
// not change before the device has sent them. So bytes that go to many receivers in a row are
// summed once.
#pragma once

#include <cstdint>

#include "transport/dpdk/net/frame_sender_datapath.h"

namespace bedplate {

struct DatagramFields {
  IpFields ip;  // make() sets the protocol
  uint16_t from_port = 0;
  uint16_t to_port = 0;
  const std::byte* bytes = nullptr;
  uint32_t byte_count = 0;
};

// Threads: the shard's.
class DatagramSender {
 public:
  // The bytes of the UDP and IP headers of a family. The longest datagram is the MTU less these.
  static uint32_t header_bytes(int family) noexcept;

  // The arguments outlive it.
  DatagramSender(FrameSender& sender, NetCounters& counters) noexcept
      : sender_(sender), counters_(counters) {}

  // Makes the frame, without its destination on the link (FrameSender::set_destination). Returns
  // nullptr if no buffer is free. Requires: both addresses are of one family; the datagram and its
  // headers fit the port's MTU.
  rte_mbuf* make(const DatagramFields& fields) noexcept;
  // Forgets the cached checksum. The stack calls it at the start of a round, because buffers may
  // have new bytes then.
  void forget_sums() noexcept { summed_bytes_ = nullptr; }

 private:
  rte_mbuf* refer(const DatagramFields& fields) noexcept;
  rte_mbuf* copy(const DatagramFields& fields) noexcept;
  uint32_t sum_of(const DatagramFields& fields, bool is_reference) noexcept;

  FrameSender& sender_;
  NetCounters& counters_;
  const std::byte* summed_bytes_ = nullptr;
  uint32_t summed_count_ = 0;
  uint16_t sum_ = 0;
};

}  // namespace bedplate
