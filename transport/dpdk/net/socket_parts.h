// The packet layer as its sockets see it: the parts that they use, and no more.
#pragma once

#include "transport/dpdk/net/datagram_sender_datapath.h"
#include "transport/dpdk/net/frame_sender_datapath.h"
#include "transport/dpdk/net/looped_frames_datapath.h"
#include "transport/dpdk/net/neighbours_datapath.h"
#include "transport/dpdk/net/net_counters.h"
#include "transport/dpdk/net/net_time.h"
#include "transport/dpdk/net/routes_datapath.h"
#include "transport/dpdk/net/socket_groups_datapath.h"
#include "transport/dpdk/net/udp_ports_datapath.h"
#include "transport/dpdk/net/way_finder_datapath.h"

namespace bedplate {

// Notes that sockets leave for the packet layer, which then serves them in its round.
struct SocketNotes {
  bool has_pending = false;  // a started socket has datagrams
  bool wants_room = false;   // a socket waits for room in the port's queue
};

// Made once by the packet layer, which outlives its sockets. Each socket has a copy.
struct SocketParts {
  const char* name;           // the port's
  const NetTime& time;        // of the event that is served
  const Routes& routes;       // the port's addresses
  UdpPorts& ports;            // where a socket is bound while it is open
  SocketGroups& groups;       // that it has joined
  WayFinder& ways;            // to the stations that it sends to
  Neighbours& neighbours;     // where frames wait for a MAC
  DatagramSender& datagrams;  // makes its frames
  FrameSender& frames;        // sends them
  LoopedFrames& looped;       // those to this port itself
  SocketNotes& notes;
  NetCounters& counters;
};

}  // namespace bedplate
