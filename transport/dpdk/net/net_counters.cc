// Tested by tests/transport/dpdk/net/broken_packets_test.cc.
#include "transport/dpdk/net/net_counters.h"

#include "platform/assert.h"

namespace bedplate {
namespace {

struct DropText {
  const char* name;
  const char* help;
};

constexpr DropText kTexts[] = {
    {"none", "not dropped"},
    {"too-short", "a header did not fit into the frame"},
    {"other-vlan", "tagged otherwise than the port is configured"},
    {"other-mac", "to another station, or from none"},
    {"ether-type", "neither ARP, IPv4 nor IPv6"},
    {"ip-header", "an IP header whose version, lengths or options make no sense"},
    {"ip-checksum", "the checksum of an IPv4 header was wrong"},
    {"ip-source", "from an address that no station may send with"},
    {"ip-destination", "to an address or group that is not this port's"},
    {"fragment", "fragments are not put together"},
    {"extension-headers", "IPv6 extension headers: too many, too long, or unknown options"},
    {"routing-header", "the sender chose the way"},
    {"protocol", "neither UDP, ICMP, IGMP nor MLD"},
    {"scattered", "the datagram did not fit into one buffer of the port"},
    {"udp-length", "a UDP length that makes no sense"},
    {"udp-checksum", "a UDP checksum was wrong, or missing with IPv6"},
    {"no-socket", "no socket takes that port and sender"},
    {"socket-full", "all buffers of the socket were kept"},
    {"arp", "an ARP message that makes no sense"},
    {"icmp", "an ICMP message whose length, checksum or quote makes no sense"},
    {"neighbour", "neighbour discovery that RFC 4861 refuses"},
    {"groups", "an IGMP or MLD message that makes no sense"},
    {"rate-limited", "answers not given, since there were too many"},
    {"unresolved", "datagrams to send whose neighbour did not answer"},
    {"waiting-full", "datagrams to send, too many of which waited for a neighbour"},
    {"no-buffer", "answers and copies for which the port had no buffer"},
    {"queue-full", "answers for which the port, or another shard, had no room"},
};
static_assert(sizeof kTexts / sizeof kTexts[0] == kDropCount);

}  // namespace

const char* drop_name(Drop cause) noexcept {
  BP_ASSERT(cause < Drop::kCount);
  return kTexts[static_cast<uint32_t>(cause)].name;
}

const char* drop_help(Drop cause) noexcept {
  BP_ASSERT(cause < Drop::kCount);
  return kTexts[static_cast<uint32_t>(cause)].help;
}

}  // namespace bedplate
