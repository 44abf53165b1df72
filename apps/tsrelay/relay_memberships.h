// Restores multicast state that network changes remove: the groups that a stream's legs have
// joined, and the interfaces that its outputs send multicast from.
//
// The kernel keeps both by interface number; this class keeps them by interface name, or by the
// routes. After each change of the network it looks the numbers up. If a number has changed, for
// example because the interface was deleted and made again, it leaves the group and joins it anew.
// It also rejoins a group periodically while its leg gets nothing: a switch may have forgotten this
// machine, or the kernel may have forgotten the group (an MTU below 68 does that).
//
// Threads: the main thread. The kernel may block it while interfaces change, and no shard may
// wait for that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/sockets/datagram_socket.h"
#include "transport/sockets/network_watch.h"

namespace bedplate::relay {

class Memberships {
 public:
  // A leg that gets nothing rejoins its group once in kAgainNs, and once in kAgainChangedNs while
  // the network keeps changing.
  static constexpr uint64_t kAgainNs = 10'000'000'000;
  static constexpr uint64_t kAgainChangedNs = 1'000'000'000;

  struct One {
    DatagramSocket* socket = nullptr;
    bool is_group = false;  // false: it is a sender
    uint32_t leg = 0;
    IpAddress group = {};
    IpAddress source = {};
    std::string interface = {};  // the interface's name; empty: by the routes
    uint32_t wanted = 0;         // the interface's current number; 0: no such interface
    uint32_t at = 0;             // the number that it joined with; 0: it is not joined
    int error_number = 0;        // of the last attempt
    uint64_t joined_ns = 0;      // the last attempt to join, or a later look that was not silent
  };

  // Before the seal: these allocate. Sockets outlive this.
  //
  // `interface`: a name; empty: by the routes. Requires: `socket` has joined the group this way.
  void add_group(uint32_t leg, DatagramSocket& socket, const IpAddress& group,
                 const IpAddress& source, const std::string& interface, InterfaceNumbers& numbers);
  // Requires: `socket` was opened with this multicast_interface.
  void add_sender(DatagramSocket& socket, const std::string& interface, InterfaceNumbers& numbers);

  // Rejoins groups and sets senders' interfaces where needed; retries after errors.
  // `has_changed`: the network has changed; `is_silent(leg)`: the leg gets nothing. Calls
  // changed(One) for each entry that has a new number, no number any more, or a new error.
  // Requires: the sockets stay open during the call.
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
