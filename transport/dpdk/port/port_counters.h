// A port's counters: one set for the port and one for each queue. The main thread writes the port's
// set, and each queue's shard writes its set. Any thread or process reads them. describe() has the
// unit and meaning of each. Port::watch() copies the device's own counters (missed, errors).
#pragma once

#include "platform/cache_line.h"
#include "platform/counter.h"

namespace bedplate {

class CounterTable;

// kGone: the device was taken away; it does not come back in this process.
enum class PortState : uint64_t { kDown, kUp, kGone };
inline constexpr char kPortStateWords[] = "down|up|gone";

// Work that the device does, as bits of PortCounters::offloads; the rest is done in software.
enum PortOffload : uint64_t {
  kReceiveChecksum = 1,
  kIpv4Checksum = 2,
  kUdpChecksum = 4,
  kSpreading = 8,  // of received frames over the queues (RSS)
  kVlanStripping = 16,
  kMultiSegment = 32,
  kReceiveInterrupts = 64
};
inline constexpr char kPortOffloadWords[] =
    "receive_checksum|ipv4_checksum|udp_checksum|spreading|vlan_stripping|multi_segment|"
    "receive_interrupts";

struct PortCounters {
  Counter state;
  Counter speed_mbps;
  Counter link_downs;
  Counter link_ups;
  Counter offloads;
  Counter missed_frames;
  Counter receive_errors;
  Counter send_errors;
  Counter no_buffer_frames;
  Counter free_buffers;
  Counter used_peak_buffers;  // the most in use, as seen by Port::watch()
  Counter buffers;
};

struct alignas(kCacheLineBytes) PortQueueCounters {
  Counter received_frames;
  Counter received_bytes;
  Counter received_bursts;
  Counter sent_frames;
  Counter sent_bytes;
  // Frames that send() did not take: the queue is full, a memif has no peer, or the port is gone. A
  // frame counts each time that it is offered.
  Counter refused_frames;
  Counter no_buffer;  // times that allocate() had no buffer
  Counter wakes;      // times that the wake descriptor woke its shard
  Counter unforwarded_frames;
};

void describe(CounterTable& table, PortCounters& counters);
void describe(CounterTable& table, PortQueueCounters& counters);

}  // namespace bedplate
