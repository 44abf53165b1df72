// The parts of the packet layer that its sockets use.
#pragma once

#include "transport/dpdk/net/datagram_sender_datapath.h"
#include "transport/dpdk/net/frame_sender_datapath.h"
#include "transport/dpdk/net/looped_frames_datapath.h"
#include "transport/dpdk/net/neighbours_datapath.h"
#include "transport/dpdk/net/net_counters.h"
#include "transport/dpdk/net/net_time.h"
#include "transport/dpdk/net/route_finder_datapath.h"
#include "transport/dpdk/net/routes_datapath.h"
#include "transport/dpdk/net/socket_groups_datapath.h"
#include "transport/dpdk/net/udp_ports_datapath.h"

namespace bedplate {

// Flags that sockets set for the packet layer. It then serves the sockets in its next round.
struct SocketNotes {
  bool has_pending = false;  // a started socket has datagrams
  bool wants_room = false;   // a socket waits for space in the port's queue
};

// The packet layer makes it once, and outlives its sockets. Each socket has a copy.
struct SocketParts {
  const char* name;           // the port's
  const NetTime& time;        // of the current event
  const Routes& routes;       // the port's addresses
  UdpPorts& ports;            // binds a socket while it is open
  SocketGroups& groups;       // joins and leaves groups
  RouteFinder& route_finder;  // finds the route to a receiver
  Neighbours& neighbours;     // holds frames that wait for a MAC
  DatagramSender& datagrams;  // makes frames
  FrameSender& frames;        // sends frames
  LoopedFrames& looped;       // takes the frames to this port itself
  SocketNotes& notes;
  NetCounters& counters;
};

}  // namespace bedplate
