#include "tests/apps/ports/port_witness.h"

#include <cstring>

#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

namespace bedplate::test {
namespace {

constexpr uint32_t kHeadBytes = sizeof(rte_ether_hdr) + sizeof(rte_ipv4_hdr) + sizeof(rte_udp_hdr);
constexpr uint32_t kEntriesLog2 = 16;
const std::byte* came_in_at[1U << kEntriesLog2];

// Returns the payload of UDP over IPv4; nullptr: it is another frame, or its headers do not lie in
// the first segment.
const std::byte* payload_of(const rte_mbuf* frame) noexcept {
  if (frame->pkt_len < kHeadBytes + sizeof(uint32_t) || frame->data_len < kHeadBytes)
    return nullptr;
  const auto* ether = rte_pktmbuf_mtod(frame, const rte_ether_hdr*);
  const auto* ip = reinterpret_cast<const rte_ipv4_hdr*>(ether + 1);
  if (ether->ether_type != RTE_BE16(RTE_ETHER_TYPE_IPV4) || ip->next_proto_id != IPPROTO_UDP)
    return nullptr;
  if (frame->data_len == kHeadBytes) return rte_pktmbuf_mtod(frame->next, const std::byte*);
  return rte_pktmbuf_mtod(frame, const std::byte*) + kHeadBytes;
}

const std::byte*& entry_of(const std::byte* payload) noexcept {
  uint32_t number = 0;
  std::memcpy(&number, payload, sizeof number);
  return came_in_at[number * 0x9e3779b1 >> (32 - kEntriesLog2)];
}

uint16_t look_at_received(uint16_t, uint16_t, rte_mbuf** frames, uint16_t count, uint16_t, void*) {
  for (uint16_t i = 0; i < count; ++i) {
    if (const std::byte* payload = payload_of(frames[i])) entry_of(payload) = payload;
  }
  return count;
}

uint16_t look_at_sent(uint16_t, uint16_t, rte_mbuf** frames, uint16_t count, void* context) {
  auto& counters = *static_cast<WitnessCounters*>(context);
  for (uint16_t i = 0; i < count; ++i) {
    const std::byte* payload = payload_of(frames[i]);
    if (payload == nullptr) continue;
    (entry_of(payload) == payload ? counters.sent_in_place : counters.sent_elsewhere).add(1);
  }
  return count;
}

}  // namespace

void witness_ports(WitnessCounters& counters) {
  for (uint16_t port = 0; port < RTE_MAX_ETHPORTS; ++port) {
    if (rte_eth_dev_is_valid_port(port) == 0) continue;
    rte_eth_add_rx_callback(port, 0, look_at_received, nullptr);
    rte_eth_add_tx_callback(port, 0, look_at_sent, &counters);
  }
}

}  // namespace bedplate::test
