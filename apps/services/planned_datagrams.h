// Planned datagram sockets, with the addresses that they open. Kernel sockets are opened before
// anything is taken, by `check` as by boot, and handed to the service in create(). Sockets on a
// network (a port) are opened in create(), when the network exists. Services use DatagramOpening;
// the rest is the runtime's. Threads: the main thread, before the seal (it allocates).
#pragma once

#include <string>
#include <vector>

#include "platform/file.h"
#include "transport/sockets/datagram_socket.h"

namespace bedplate {

struct ServiceNeeds;

struct DatagramMembership {
  IpAddress group;
  IpAddress source = {};       // no address: any source
  std::string interface = {};  // empty: by the routing table
};

// The address, options and groups of a datagram socket that a service plans
// (ServicePlan::datagram_socket).
struct DatagramOpening {
  std::string what = {};         // for people: "leg 0 of the stream news"
  DatagramOptions options = {};  // without owner and interface
  std::string multicast_interface = {};
  std::vector<DatagramMembership> memberships = {};
};

// The complete options of the socket; they are valid as long as `opening`.
DatagramOptions options_of(const DatagramOpening& opening, const DatagramOwner& owner) noexcept;

// Opens `socket`, which is not open, and joins its groups. With an open `fd`, `socket` is a
// UdpSocket and takes over `fd`, which open_datagrams() has opened for the same opening. Without
// one, `socket` is a network's socket. Errors: the socket's; it may then be open, with some groups.
Result<void> open_planned(DatagramSocket& socket, const DatagramOpening& opening,
                          const DatagramOwner& owner, Fd fd);

// Opens the planned kernel sockets of `services`. Returns, for each service, a descriptor for each
// of its datagram sockets. A descriptor is not open if its socket is on a network, has no
// DatagramOpening, or has a problem. Appends the first problem of each socket to `problems`:
// a missing address, a port that is in use or that the configuration has twice, an interface, a
// group that cannot be joined. Each group is joined and left again, so that no datagram arrives
// before its service runs.
std::vector<std::vector<Fd>> open_datagrams(const std::vector<ServiceNeeds>& services,
                                            std::vector<Error>* problems);

}  // namespace bedplate
