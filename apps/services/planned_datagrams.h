// Datagram sockets that are planned with their openings. Sockets of the kernel are opened before
// anything is taken, by `check` as by boot, and handed to the service in create(); those of a
// network (a port) are opened in create(), when the network is there.
// Services use DatagramOpening; the rest is the runtime's. Threads: the main thread, before the
// seal (it allocates).
#pragma once

#include <string>
#include <vector>

#include "platform/file.h"
#include "transport/sockets/datagram_socket.h"

namespace bedplate {

struct ServiceNeeds;

struct DatagramMembership {
  IpAddress group;
  IpAddress source = {};       // none: from anybody
  std::string interface = {};  // empty: the routes say
};

// The opening of a datagram socket that a service plans (ServicePlan::datagram_socket).
struct DatagramOpening {
  std::string what = {};         // for people: "leg 0 of the stream news"
  DatagramOptions options = {};  // without owner and interface
  std::string multicast_interface = {};
  std::vector<DatagramMembership> memberships = {};
};

// Its options with all that a socket wants; they live as long as `opening`.
DatagramOptions options_of(const DatagramOpening& opening, const DatagramOwner& owner) noexcept;

// Opens and joins it on `socket`, which is not open: a network's, or (`fd` is open) the kernel's,
// which open_datagrams() has opened by the same. Errors: the socket's.
Result<void> open_planned(DatagramSocket& socket, const DatagramOpening& opening,
                          const DatagramOwner& owner, Fd fd);

// Opens the sockets of `services` that the plan has the kernel open. Returns, for each service, a
// descriptor for each of its datagram sockets; those of other sockets are not open. Appends each
// problem to `problems`: an address that is not there, a port that somebody has or that the
// configuration has twice, an interface, a group that cannot be joined. Each group is joined and
// left again: no datagram shall come before its service is there.
std::vector<std::vector<Fd>> open_datagrams(const std::vector<ServiceNeeds>& services,
                                            std::vector<Error>* problems);

}  // namespace bedplate
