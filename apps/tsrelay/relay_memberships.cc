#include "apps/tsrelay/relay_memberships.h"

namespace bedplate::relay {

void Memberships::add_group(uint32_t leg, DatagramSocket& socket, const IpAddress& group,
                            const IpAddress& source, const std::string& interface,
                            InterfaceNumbers& numbers) {
  One one;
  one.socket = &socket;
  one.is_group = true;
  one.leg = leg;
  one.group = group;
  one.source = source;
  one.interface = interface;
  one.wanted = one.at = find(one, numbers);
  all_.push_back(std::move(one));
}

void Memberships::add_sender(DatagramSocket& socket, const std::string& interface,
                             InterfaceNumbers& numbers) {
  One one;
  one.socket = &socket;
  one.interface = interface;
  one.wanted = one.at = find(one, numbers);
  all_.push_back(std::move(one));
}

// The interface's current number. A group keeps it without a route while the interface exists.
uint32_t Memberships::find(const One& one, InterfaceNumbers& numbers) noexcept {
  if (!one.interface.empty()) return numbers.index_of(one.interface);
  if (const uint32_t index = numbers.index_toward(one.group)) return index;
  return one.at != 0 && numbers.is_there(one.at) ? one.at : 0;
}

bool Memberships::look(One& one, InterfaceNumbers& numbers, bool has_changed, uint64_t now_ns,
                       bool is_silent) noexcept {
  if (!is_silent) one.joined_ns = now_ns;
  const uint64_t again_ns = has_changed ? kAgainChangedNs : kAgainNs;
  const bool is_again = is_silent && now_ns - one.joined_ns >= again_ns;
  if (has_changed || is_again) one.wanted = find(one, numbers);
  if (one.wanted == one.at && !(is_again && one.wanted != 0)) return false;
  const uint32_t was_at = one.at;
  const int was_error = one.error_number;
  one.joined_ns = now_ns;
  if (one.is_group) {
    one.error_number = one.socket->rejoin(one.group, one.source, one.at, one.wanted);
  } else {
    one.error_number = one.wanted != 0 ? one.socket->send_multicast_over(one.wanted) : 0;
  }
  one.at = one.error_number == 0 ? one.wanted : 0;
  return one.at != was_at || one.error_number != was_error;
}

}  // namespace bedplate::relay
