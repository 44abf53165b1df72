// A port's addresses, and the next hop of a packet: a station on the link, or the gateway of its
// family.
#pragma once

#include <cstdint>

#include "platform/assert.h"
#include "transport/dpdk/net/ip_words_datapath.h"

namespace bedplate {

// Threads: the shard's, but for calls before the start.
class Routes {
 public:
  static constexpr uint32_t kAddressCountMax = 17;  // including the link-local one
  static constexpr uint32_t kNone = ~uint32_t{0};

  // Adds an address of the port. Requires: there are fewer than kAddressCountMax; the address is
  // new; its prefix is no longer than an address.
  void add(const IpPrefix& address) noexcept;
  // Sets the gateway of `family`. A `gateway` of family 0 removes it. Requires: `gateway` is of
  // `family`, or of family 0.
  void set_gateway(int family, const IpAddress& gateway) noexcept;
  const IpAddress& gateway(int family) const noexcept {
    return family == AF_INET6 ? gateway6_ : gateway4_;
  }

  uint32_t address_count() const noexcept { return count_; }
  const IpPrefix& address(uint32_t index) const noexcept {
    BP_DCHECK(index < count_);
    return entries_[index].prefix;
  }

  bool is_own(const IpAddress& address) const noexcept { return index_of(address) != kNone; }
  // The index of an address of the port, as of address(); kNone: it is not the port's.
  uint32_t index_of(const IpAddress& address) const noexcept;
  // Whether it is the broadcast address of the link, or of one of its networks; IPv6 has none.
  bool is_broadcast(const IpAddress& address) const noexcept;
  // Whether it is in the network of one of the port's addresses, the link-local one included.
  bool is_on_link(const IpAddress& address) const noexcept {
    return find_network(address) != kNone;
  }
  // Returns the station on the link that gets packets to `to`, or none if there is no route.
  // Requires: `to` is not a group.
  IpAddress next_hop(const IpAddress& to) const noexcept;
  // Returns the source address for `to` (RFC 6724, simplified): our address in the network of `to`,
  // or of the gateway; else our first address that is not link-local. For a group of link scope it
  // is our link-local address. If there is no such address, it is any address of the family; if
  // there is none, none.
  IpAddress source_for(const IpAddress& to) const noexcept;

 private:
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
