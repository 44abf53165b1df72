// Numeric addresses of IPv4 and IPv6, as a configuration writes them and the kernel takes them
// (inet_pton(3)). Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "platform/version.h"

namespace bedplate {

struct IpAddress {
  int family = 0;          // AF_INET or AF_INET6; 0: none
  uint8_t bytes[16] = {};  // in network order; IPv4 has the first four, the others are 0

  // 4 or 16. Requires: it is an address.
  uint32_t byte_count() const noexcept;
  // Whether it is a multicast address: 224.0.0.0/4, ff00::/8.
  bool is_multicast() const noexcept;
  bool operator==(const IpAddress&) const noexcept = default;
};

// An address and the length of its network's prefix in bits.
struct IpPrefix : IpAddress {
  uint8_t prefix_bits = 0;

  // Whether `address` is in its network.
  bool contains(const IpAddress& address) const noexcept;
};

// Reads "10.0.2.15" or "fd00::2". Nothing for anything else.
std::optional<IpAddress> parse_ip_address(const std::string& text);

// Reads "10.0.2.15/24" or "fd00::2/64", with 1 to 32 or 1 to 128 bits. Nothing for anything else.
std::optional<IpPrefix> parse_ip_prefix(const std::string& text);

}  // namespace bedplate
