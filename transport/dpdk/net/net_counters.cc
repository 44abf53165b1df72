#include "transport/dpdk/net/net_counters.h"

#include "platform/assert.h"

namespace bedplate {
namespace {

struct DropText {
  const char* name;
  const char* help;
  const char* cure;  // nullptr: such frames are meant for others
};

constexpr DropText kTexts[] = {
    {"none", "not dropped", nullptr},
    {"too-short", "a header did not fit into the frame", "look at the station that sends them"},
    {"other-vlan", "tagged otherwise than the port is configured", nullptr},
    {"other-mac", "to another station, or from none", nullptr},
    {"ether-type", "neither ARP, IPv4 nor IPv6", nullptr},
    {"ip-header", "an IP header whose version, lengths or options make no sense",
     "look at the station that sends them"},
    {"ip-checksum", "the checksum of an IPv4 header was wrong",
     "look at the cable, the switch, and the sender's offloads"},
    {"ip-source", "from an address that no station may send with",
     "look at the station that sends them"},
    {"ip-destination", "to an address or group that is not this port's", nullptr},
    {"fragment", "fragments are not put together",
     "have datagrams sent that fit the MTU of the way"},
    {"extension-headers", "IPv6 extension headers: too many, too long, or unknown options",
     "look at the station that sends them"},
    {"routing-header", "the sender chose the way", "look at the station that sends them"},
    {"protocol", "neither UDP, ICMP, IGMP nor MLD", nullptr},
    {"scattered", "the datagram did not fit into one buffer of the port",
     "lower the MTU of those that send here"},
    {"udp-length", "a UDP length that makes no sense", "look at the station that sends them"},
    {"udp-checksum", "a UDP checksum was wrong, or missing with IPv6",
     "look at the cable, the switch, and the sender's offloads"},
    {"no-socket", "no socket takes that port and sender", nullptr},
    {"socket-full", "all buffers of the socket were kept",
     "give its service more buffers, or a core of its own"},
    {"arp", "an ARP message that makes no sense", "look at the station that sends them"},
    {"icmp", "an ICMP message whose length, checksum or quote makes no sense",
     "look at the station that sends them"},
    {"neighbour", "neighbour discovery that RFC 4861 refuses",
     "look at the station that sends them"},
    {"groups", "an IGMP or MLD message that makes no sense", "look at the switch's querier"},
    {"rate-limited", "answers not given, since there were too many",
     "look for a station that floods this one"},
    {"unresolved", "datagrams to send whose neighbour did not answer",
     "look whether those that it sends to are there"},
    {"waiting-full", "datagrams to send, too many of which waited for a neighbour",
     "look whether those that it sends to are there"},
    {"no-buffer", "answers and copies for which the port had no buffer",
     "give the port more buffers"},
    {"queue-full", "answers for which the port, or another shard, had no room",
     "give it longer queues, or a core of its own"},
};
static_assert(sizeof kTexts / sizeof kTexts[0] == kDropCount);

}  // namespace

const char* to_text(Drop cause) noexcept {
  BP_ASSERT(cause < Drop::kCount);
  return kTexts[static_cast<uint32_t>(cause)].name;
}

const char* drop_help(Drop cause) noexcept {
  BP_ASSERT(cause < Drop::kCount);
  return kTexts[static_cast<uint32_t>(cause)].help;
}

const char* drop_cure(Drop cause) noexcept {
  BP_ASSERT(cause < Drop::kCount);
  return kTexts[static_cast<uint32_t>(cause)].cure;
}

}  // namespace bedplate
