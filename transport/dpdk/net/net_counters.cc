#include "transport/dpdk/net/net_counters.h"

#include <algorithm>
#include <string>

#include "platform/assert.h"
#include "platform/counter_table.h"

namespace bedplate {
namespace {

struct DropText {
  const char* name;
  const char* help;
  const char* cure;  // nullptr: such frames are meant for other stations
};

constexpr DropText kTexts[] = {
    {"none", "not dropped", nullptr},
    {"too-short", "a header did not fit into the frame", "look at the station that sends them"},
    {"other-vlan", "another VLAN tag than the port's", nullptr},
    {"other-mac", "to another station, or without a valid source", nullptr},
    {"ether-type", "neither ARP, IPv4 nor IPv6", nullptr},
    {"ip-header", "an IP header with an invalid version, length or option",
     "look at the station that sends them"},
    {"ip-checksum", "the checksum of an IPv4 header was wrong",
     "look at the cable, the switch, and the sender's offloads"},
    {"ip-source", "from an address that is not valid as a source",
     "look at the station that sends them"},
    {"ip-destination", "to an address or group that is not this port's", nullptr},
    {"fragment", "a fragment: fragments are not reassembled",
     "have datagrams sent that fit the path MTU"},
    {"extension-headers", "IPv6 extension headers: too many, too long, or unknown options",
     "look at the station that sends them"},
    {"routing-header", "a source-routed packet", "look at the station that sends them"},
    {"protocol", "neither UDP, ICMP, IGMP nor MLD", nullptr},
    {"scattered", "the datagram did not fit into one buffer of the port",
     "lower the MTU of those that send here"},
    {"udp-length", "an invalid UDP length", "look at the station that sends them"},
    {"udp-checksum", "a UDP checksum was wrong, or missing with IPv6",
     "look at the cable, the switch, and the sender's offloads"},
    {"no-socket", "no socket takes that port and sender", nullptr},
    {"socket-full", "the socket had as many pending and kept datagrams as it may",
     "give its service more buffers, or a core of its own"},
    {"arp", "an invalid ARP message", "look at the station that sends them"},
    {"icmp", "an ICMP message with an invalid length or checksum, or a useless quote or MTU",
     "look at the station that sends them"},
    {"neighbour", "neighbour discovery that RFC 4861 refuses",
     "look at the station that sends them"},
    {"groups", "an invalid IGMP or MLD message", "look at the switch's querier"},
    {"rate-limited", "answers, and copies for other shards, beyond the rate limit",
     "look for a station that floods this one"},
    {"unresolved", "datagrams whose neighbour did not answer",
     "check that their destinations are up"},
    {"waiting-full", "too many datagrams waited, or for too many neighbours",
     "check that their destinations are up"},
    {"no-buffer", "frames to send, of sockets too, for which the port had no buffer",
     "give the port more buffers"},
    {"queue-full", "the port's queue, another shard's, or that of looped frames was full",
     "give it longer queues, or a core of its own"},
};
static_assert(sizeof kTexts / sizeof kTexts[0] == kDropCount);

}  // namespace

const char* to_text(PacketDrop cause) noexcept {
  BP_ASSERT(cause < PacketDrop::kCount);
  return kTexts[static_cast<uint32_t>(cause)].name;
}

void describe(CounterTable& table, NetCounters& c) {
  table.counter("received_frames", c.received_frames, "frames", "Frames examined.");
  table.counter("received_datagrams", c.received_datagrams, "datagrams", "Handed to sockets.");
  table.counter("received_bytes", c.received_bytes, "bytes", "Their bytes.");
  table.counter("sent_frames", c.sent_frames, "frames", "Frames handed to the port.");
  table.counter("sent_datagrams", c.sent_datagrams, "datagrams", "Datagrams sent by sockets.");
  table.counter("sent_bytes", c.sent_bytes, "bytes", "Their bytes.");
  table.counter("copied_bytes", c.copied_bytes, "bytes",
                "Bytes of datagrams that were copied into frames, sent or not; all others went by "
                "reference.");
  table.counter("summed_bytes", c.summed_bytes, "bytes",
                "Bytes of datagrams, sent or not, that were read for a checksum that the device "
                "does not compute.");
  table
      .counter("truncated_datagrams", c.truncated_datagrams, "datagrams",
               "Datagrams longer than the buffer of their socket.")
      .alert_as_it_grows(
          "{truncated_datagrams} datagrams were longer than their buffer so far: raise "
          "buffer_bytes, or have shorter ones sent");
  table.counter("looped_frames", c.looped_frames, "frames",
                "Frames looped back: own multicast, and packets to an own address.");
  table.counter("handed_frames", c.handed_frames, "frames", "Frames handed to other shards.");
  table.counter("echo_replies", c.echo_replies, "replies", "Answers to ping.");
  table
      .counter("address_conflicts", c.address_conflicts, "times",
               "Claims of another station to an address of this port.")
      .alert_as_it_grows(
          "another station claimed an address of this port {address_conflicts} times so far: "
          "give one of them another address");
  table
      .counter("neighbours_full", c.neighbours_full, "times",
               "Neighbours refused: the table was full.")
      .alert_as_it_grows(
          "its table of neighbours was full {neighbours_full} times so far: have fewer stations "
          "in its network, behind a router");
  for (uint32_t i = 1; i < kDropCount; ++i) {
    const DropText& drop = kTexts[i];
    std::string name = "drop_" + std::string(drop.name);
    std::replace(name.begin(), name.end(), '-', '_');
    const std::string help = "Frames dropped: " + std::string(drop.help) + ".";
    CounterDescription& counter = table.counter(name.c_str(), c.drops[i], "frames", help.c_str());
    if (drop.cure != nullptr) {
      const std::string trouble = "{" + name + "} frames were dropped so far: " + drop.help;
      counter.alert_as_it_grows((trouble + "; " + drop.cure).c_str());
    } else {
      counter.no_alert("a network carries such frames for other stations");
    }
  }
}

}  // namespace bedplate
