// A packet layer's counters: one set for each queue of a port.
#pragma once

#include <cstdint>

#include "platform/counter.h"

namespace bedplate {

class CounterTable;

// Why a frame was dropped. kNone: it was not.
enum class Drop : uint8_t {
  kNone,
  kTooShort,          // a header does not fit into the frame
  kOtherVlan,         // tagged otherwise than the port is configured
  kOtherMac,          // to another station
  kEtherType,         // neither ARP, IPv4 nor IPv6
  kIpHeader,          // version, length or an option that makes no sense
  kIpChecksum,        // of the header of IPv4
  kIpSource,          // multicast, broadcast, loopback or one of our own as the sender
  kIpDestination,     // not to this port, or to a group that nobody joined
  kFragment,          // there is no reassembly here
  kExtensionHeaders,  // more of them, or longer, than are looked through
  kRoutingHeader,     // RFC 5095
  kProtocol,          // neither UDP, ICMP, IGMP nor MLD
  kScattered,         // its bytes lie in several buffers: the port's are too small
  kUdpLength,
  kUdpChecksum,  // or none, on IPv6
  kNoSocket,     // no socket has that port and takes that sender
  kSocketFull,   // the socket's buffers were all kept
  kArp,
  kIcmp,         // length, checksum, or a quote that is none of ours
  kNeighbour,    // hop limit, option or address of neighbour discovery that RFC 4861 refuses
  kGroups,       // of IGMP or MLD, the same
  kRateLimited,  // an answer that was not given
  kUnresolved,   // to send: the neighbour gave no answer
  kWaitingFull,  // to send: too many wait for neighbours' answers
  kNoBuffer,     // an answer or a copy, for which the port had no mbuf
  kQueueFull,    // an answer that the port, or a frame that another shard, had no room for
  kCount
};
inline constexpr uint32_t kDropCount = static_cast<uint32_t>(Drop::kCount);

// "too-short", as `bedplate stats` names it. Static. Threads: any.
const char* to_text(Drop cause) noexcept;

// Written by the shard. A zeroed one is a valid one.
struct NetCounters {
  Counter received_frames;
  Counter received_datagrams;
  Counter received_bytes;  // of datagrams
  Counter sent_frames;
  Counter sent_datagrams;
  Counter sent_bytes;    // of datagrams
  Counter copied_bytes;  // of them, into frames; the others went by reference
  Counter summed_bytes;  // of datagrams sent, read for a checksum in software
  Counter truncated_datagrams;
  Counter looped_frames;  // own multicast, and datagrams to an own address
  Counter handed_frames;  // to other shards
  Counter echo_replies;
  Counter address_conflicts;  // another station has an address of ours
  Counter neighbours_full;    // sends refused since the table had no entry
  Counter drops[kDropCount];

  void drop(Drop cause) noexcept { drops[static_cast<uint32_t>(cause)].add(1); }
};
void describe(CounterTable& table, NetCounters& counters);

}  // namespace bedplate
