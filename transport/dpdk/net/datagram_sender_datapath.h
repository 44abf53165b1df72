// Makes the frame of a datagram: by reference if the bytes are in a received buffer, otherwise by
// copy. Computes the checksum if the port does not.
//
// The sum over bytes sent by reference is cached for one round, as they may not change before the
// device has sent them. So bytes that go to many receivers are summed once.
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

class DatagramSender {
 public:
  // The bytes of the UDP and IP headers of a family: the MTU less these is the longest datagram.
  static uint32_t header_bytes(int family) noexcept;

  DatagramSender(FrameSender& sender, NetCounters& counters) noexcept
      : sender_(sender), counters_(counters) {}

  // Makes the frame, without its destination on the link (FrameSender::set_destination). Returns
  // nullptr if no buffer is free.
  rte_mbuf* make(const DatagramFields& fields) noexcept;
  // A round has ended: received buffers may get other bytes from now on.
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
