// A packet layer's counters: one set for each queue of a port.
#pragma once

#include <cstdint>

#include "platform/counter.h"

namespace bedplate {

class CounterTable;

// The cause of a dropped frame. kNone: it was not dropped.
enum class PacketDrop : uint8_t {
  kNone,
  kTooShort,          // a header does not fit into the frame
  kOtherVlan,         // a tag that does not match the port's configuration
  kOtherMac,          // to another station
  kEtherType,         // not ARP, IPv4 or IPv6
  kIpHeader,          // an invalid version, length or option
  kIpChecksum,        // of the IPv4 header
  kIpSource,          // the source is multicast, broadcast, loopback or one of our own addresses
  kIpDestination,     // not this port's, or a group that no socket has joined
  kFragment,          // there is no reassembly
  kExtensionHeaders,  // too many of them, or too long
  kRoutingHeader,     // RFC 5095
  kProtocol,          // not UDP, ICMP, IGMP or MLD
  kScattered,         // its bytes are in several buffers: the port's buffers are too small
  kUdpLength,
  kUdpChecksum,  // wrong; on IPv6 also if it is missing
  kNoSocket,     // no socket takes that port and sender
  kSocketFull,   // the socket keeps as many buffers as it may
  kArp,
  kIcmp,         // bad length or checksum, or a quote that is not of our datagram
  kNeighbour,    // neighbour discovery with a hop limit, option or address that RFC 4861 refuses
  kGroups,       // the same for IGMP or MLD
  kRateLimited,  // an answer that was suppressed
  kUnresolved,   // to send: the neighbour did not answer
  kWaitingFull,  // to send: too many frames wait for neighbours
  kNoBuffer,     // an answer or a copy for which the port had no mbuf
  kQueueFull,    // the port's queue, for an answer, or another shard's ring was full
  kCount
};
inline constexpr uint32_t kDropCount = static_cast<uint32_t>(PacketDrop::kCount);

// "too-short", as `bedplate stats` names it. Static. Threads: any.
const char* to_text(PacketDrop cause) noexcept;

// Written by the shard. Zeroed memory is a valid set.
struct NetCounters {
  Counter received_frames;
  Counter received_datagrams;
  Counter received_bytes;  // of datagrams
  Counter sent_frames;
  Counter sent_datagrams;
  Counter sent_bytes;    // of datagrams
  Counter copied_bytes;  // of them, copied into frames; the others were sent by reference
  Counter summed_bytes;  // of datagrams sent, summed in software
  Counter truncated_datagrams;
  Counter looped_frames;  // multicast of our own, and datagrams to our own addresses
  Counter handed_frames;  // to other shards
  Counter echo_replies;
  Counter address_conflicts;  // another station uses one of our addresses
  Counter neighbours_full;    // sends refused because the neighbour table was full
  Counter drops[kDropCount];

  void drop(PacketDrop cause) noexcept { drops[static_cast<uint32_t>(cause)].add(1); }
};
void describe(CounterTable& table, NetCounters& counters);

}  // namespace bedplate
