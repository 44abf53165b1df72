// The groups that a stream's legs have joined, and the interfaces that its outputs send multicast
// by: what the network takes away comes back.
//
// The kernel keeps both for an interface's number; here they are kept by its name, or by the way
// that the routes say. After each change of the network they are looked up; where the number is
// another one, as of an interface that was deleted and made again, the group is left and joined
// anew. So it is while its leg gets nothing, now and then: a switch that has forgotten this
// machine, or a kernel that has forgotten the group (an MTU below 68 does that), hears of it again.
//
// Threads: the control thread. The kernel may keep it waiting while it works on interfaces, which
// no shard should.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/datagram_socket.h"
#include "transport/network_watch.h"

namespace bedplate::relay {

class Memberships {
 public:
  // How often a leg that gets nothing joins its group anew, and how often where the network goes on
  // changing.
  static constexpr uint64_t kAgainNs = 10'000'000'000;
  static constexpr uint64_t kAgainChangedNs = 1'000'000'000;

  struct One {
    DatagramSocket* socket = nullptr;
    bool is_group = false;  // else it sends
    uint32_t leg = 0;
    IpAddress group = {};
    IpAddress source = {};
    std::string interface = {};  // its name; empty: as the routes say
    uint32_t wanted = 0;         // its number now; 0: there is none
    uint32_t at = 0;             // the number that it is joined by; 0: it is not
    int error_number = 0;        // of the last attempt
    uint64_t joined_ns = 0;      // the last time, or when packets came last
  };

  // Before the seal: these allocate. Sockets outlive this.
  //
  // `interface`: its name; empty: as the routes say. Requires: `socket` has joined it so.
  void add_group(uint32_t leg, DatagramSocket& socket, const IpAddress& group,
                 const IpAddress& source, const std::string& interface, InterfaceNumbers& numbers);
  // Requires: `socket` was opened with this multicast_interface.
  void add_sender(DatagramSocket& socket, const std::string& interface, InterfaceNumbers& numbers);

  // Joins anew what must be. `has_changed`: the network; `is_silent(leg)`: nothing comes by it.
  // Calls changed(One) for each that has another number, none, or another error than before.
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
