// The counters of a packet layer. Each queue of a port has one set.
#pragma once

#include <cstdint>

#include "platform/counter.h"

namespace bedplate {

class CounterTable;

// The cause of a dropped frame. kNone means that it was not dropped.
enum class PacketDrop : uint8_t {
  kNone,
  kTooShort,          // a header does not fit into the frame
  kOtherVlan,         // a tag that does not match the port's configuration
  kOtherMac,          // to another station, or from a group or from our own MAC
  kEtherType,         // not ARP, IPv4 or IPv6
  kIpHeader,          // an invalid version, length or option
  kIpChecksum,        // of the IPv4 header
  kIpSource,          // the source is none, multicast, broadcast, loopback, or our own address
  kIpDestination,     // not this port's, or a group or broadcast that no socket takes
  kFragment,          // there is no reassembly
  kExtensionHeaders,  // too many of them, too long, or with an option that must be refused
  kRoutingHeader,     // RFC 5095, or an IPv4 source route
  kProtocol,          // not UDP, ICMP, IGMP or MLD
  kScattered,         // its bytes are in several buffers: the port's buffers are too small
  kUdpLength,
  kUdpChecksum,  // wrong; on IPv6 also if it is missing
  kNoSocket,     // no socket takes that port and sender
  kSocketFull,   // the socket has as many pending and kept datagrams as it may
  kArp,
  kIcmp,         // bad length or checksum, a quote not of our datagram, or a useless MTU
  kNeighbour,    // neighbour discovery with a hop limit, option or address that RFC 4861 refuses
  kGroups,       // an invalid IGMP or MLD message
  kRateLimited,  // an answer, or a copy for the other shards, beyond the rate limit
  kUnresolved,   // to send: the neighbour did not answer
  kWaitingFull,  // to send: too many frames wait, or too many neighbours
  kNoBuffer,     // a frame to send: the port had no mbuf; a socket may send its datagram again
  kQueueFull,    // full: the port's queue for an answer, the looped frames, or another shard's ring
  kCount
};
inline constexpr uint32_t kDropCount = static_cast<uint32_t>(PacketDrop::kCount);

// Returns "too-short" for kTooShort. `bedplate stats` names its counter drop_too_short. The text is
// static. Threads: any.
const char* to_text(PacketDrop cause) noexcept;

// The shard writes them. Zeroed memory is a valid set.
struct NetCounters {
  Counter received_frames;
  Counter received_datagrams;
  Counter received_bytes;  // of datagrams
  Counter sent_frames;
  Counter sent_datagrams;
  Counter sent_bytes;  // of datagrams
  // Bytes of datagrams that were copied into frames, and bytes that were summed in software. Both
  // also count frames that the port then refused.
  Counter copied_bytes;
  Counter summed_bytes;
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
