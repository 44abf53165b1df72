// Restores what the network takes away: the groups that a stream's legs have joined, and the
// interfaces that its outputs send multicast by.
//
// The kernel keeps both by an interface's number; here they are kept by its name, or by the routes.
// After each change of the network the numbers are looked up. If a number has changed, as that of
// an interface that was deleted and made again, the group is left and joined anew. A group is also
// joined anew now and then while its leg gets nothing: a switch may have forgotten this machine, or
// the kernel the group (an MTU below 68 does that).
//
// Threads: the control thread: the kernel may keep it waiting while it changes interfaces, and no
// shard may wait for that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/sockets/datagram_socket.h"
#include "transport/sockets/network_watch.h"

namespace bedplate::relay {

class Memberships {
 public:
  // The period in which a leg that gets nothing joins its group anew; the next: while the network
  // keeps changing.
  static constexpr uint64_t kAgainNs = 10'000'000'000;
  static constexpr uint64_t kAgainChangedNs = 1'000'000'000;

  struct One {
    DatagramSocket* socket = nullptr;
    bool is_group = false;  // else it sends
    uint32_t leg = 0;
    IpAddress group = {};
    IpAddress source = {};
    std::string interface = {};  // its name; empty: by the routes
    uint32_t wanted = 0;         // the interface's number now; 0: there is none
    uint32_t at = 0;             // the number that it is joined by; 0: it is not joined
    int error_number = 0;        // of the last attempt
    uint64_t joined_ns = 0;      // the time of the last join, or of the last packets
  };

  // Before the seal: these allocate. Sockets outlive this.
  //
  // `interface`: its name; empty: by the routes. Requires: `socket` has joined the group so.
  void add_group(uint32_t leg, DatagramSocket& socket, const IpAddress& group,
                 const IpAddress& source, const std::string& interface, InterfaceNumbers& numbers);
  // Requires: `socket` was opened with this multicast_interface.
  void add_sender(DatagramSocket& socket, const std::string& interface, InterfaceNumbers& numbers);

  // Joins groups anew if needed. `has_changed`: the network has; `is_silent(leg)`: it gets nothing.
  // Calls changed(One) for each one that has a new number, none any more, or a new error.
  // Requires: nobody closes the sockets meanwhile.
  template <typename IsSilent, typename Changed>
  void look(InterfaceNumbers& numbers, bool has_changed, uint64_t now_ns, IsSilent is_silent,
            Changed changed) noexcept {
    for (One& each : all_) {
      const bool is_quiet = each.is_group && is_silent(each.leg);
      if (look(each, numbers, has_changed, now_ns, is_quiet)) changed(each);
    }
  }

 private:
  static bool look(One& one, InterfaceNumbers& numbers, bool has_changed, uint64_t now_ns,
                   bool is_silent) noexcept;
  static uint32_t find(const One& one, InterfaceNumbers& numbers) noexcept;

  std::vector<One> all_;
};

}  // namespace bedplate::relay
