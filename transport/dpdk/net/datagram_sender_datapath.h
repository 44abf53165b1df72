// Makes the frame of a datagram: by reference if the bytes lie in a received buffer, else by copy.
// Makes the checksum, if the port does not.
//
// The sum over bytes sent by reference is remembered for the round: they may not change before the
// device has sent them. So bytes that go to many are read once.
#pragma once

#include <cstdint>

#include "transport/dpdk/net/frame_sender_datapath.h"

namespace bedplate {

struct DatagramFields {
  IpFields ip;  // its protocol is set here
  uint16_t from_port = 0;
  uint16_t to_port = 0;
  const std::byte* bytes = nullptr;
  uint32_t byte_count = 0;
};

class DatagramSender {
 public:
  // The bytes of the UDP and IP headers of a family: a datagram has so much less than the MTU.
  static uint32_t header_bytes(int family) noexcept;

  DatagramSender(FrameSender& sender, NetCounters& counters) noexcept
      : sender_(sender), counters_(counters) {}

  // Makes the frame, without its destination on the link (FrameSender::set_destination). nullptr:
  // there is no buffer.
  rte_mbuf* make(const DatagramFields& fields) noexcept;
  // A round has ended: from now on received buffers may have other bytes.
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
