// A port's addresses, and the next hop of a packet: a station on the link, or the gateway of its
// family.
#pragma once

#include <cstdint>

#include "platform/assert.h"
#include "transport/dpdk/net/ip_words_datapath.h"

namespace bedplate {

class Routes {
 public:
  static constexpr uint32_t kAddressCountMax = 17;  // including the link-local one

  // Requires: space for one more, and a new address; its prefix is no longer than an address.
  void add(const IpPrefix& address) noexcept;
  // Sets the gateway. An address of family 0 removes it. Requires: any other `gateway` is of
  // `family`.
  void set_gateway(int family, const IpAddress& gateway) noexcept;
  const IpAddress& gateway(int family) const noexcept {
    return family == AF_INET6 ? gateway6_ : gateway4_;
  }

  uint32_t address_count() const noexcept { return count_; }
  const IpPrefix& address(uint32_t index) const noexcept {
    BP_DCHECK(index < count_);
    return entries_[index].prefix;
  }

  bool is_own(const IpAddress& address) const noexcept;
  // Whether it is the broadcast address of the link, or of one of its networks; IPv6 has none.
  bool is_broadcast(const IpAddress& address) const noexcept;
  // Whether it is in the network of one of the port's addresses, or link-local.
  bool is_on_link(const IpAddress& address) const noexcept {
    return find_network(address) != kNone;
  }
  // The station that gets packets to `to`, which is no group; none: no route.
  IpAddress next_hop(const IpAddress& to) const noexcept;
  // The source address for `to` (RFC 6724, simplified): our address in the network of `to`, or of
  // the gateway; else our first address that is not link-local. For a group of link scope: our
  // link-local address. None: no address fits.
  IpAddress source_for(const IpAddress& to) const noexcept;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Entry {
    IpPrefix prefix;
    uint64_t mask[2] = {};  // in network order
  };
  uint32_t find_network(const IpAddress& address) const noexcept;

  Entry entries_[kAddressCountMax];
  uint32_t count_ = 0;
  IpAddress gateway4_;
  IpAddress gateway6_;
};

}  // namespace bedplate
