// IP addresses for the packet layer: reads and writes them in headers, classifies them, and derives
// MAC addresses from them.
#pragma once

#include <cstdint>
#include <cstring>

#include <netinet/in.h>
#include <rte_byteorder.h>
#include <rte_ether.h>

#include "platform/assert.h"
#include "transport/sockets/ip_address.h"

namespace bedplate {

inline IpAddress ipv4_address(rte_be32_t value) noexcept {
  IpAddress address;
  address.family = AF_INET;
  std::memcpy(address.bytes, &value, sizeof value);
  return address;
}

inline IpAddress ipv4_address(uint8_t a, uint8_t b, uint8_t c, uint8_t d) noexcept {
  return {AF_INET, {a, b, c, d}};
}

inline IpAddress ipv6_address(const void* bytes) noexcept {
  IpAddress address;
  address.family = AF_INET6;
  std::memcpy(address.bytes, bytes, sizeof address.bytes);
  return address;
}

inline rte_be32_t ipv4_of(const IpAddress& address) noexcept {
  rte_be32_t value;
  std::memcpy(&value, address.bytes, sizeof value);
  return value;
}

// Compares only the first four bytes of IPv4 addresses. Two addresses of family 0 are the same.
inline bool is_same(const IpAddress& one, const IpAddress& other) noexcept {
  return one.family == other.family &&
         (one.family == AF_INET6 ? std::memcmp(one.bytes, other.bytes, 16) == 0
                                 : ipv4_of(one) == ipv4_of(other) || one.family == 0);
}

// 0.0.0.0 or ::.
inline bool is_unspecified(const IpAddress& address) noexcept {
  static constexpr uint8_t kZeros[16] = {};
  return std::memcmp(address.bytes, kZeros, address.byte_count()) == 0;
}

// 224.0.0.0/4 or ff00::/8.
inline bool is_multicast(const IpAddress& address) noexcept {
  return address.family == AF_INET ? address.bytes[0] >> 4 == 14 : address.bytes[0] == 0xff;
}

// fe80::/10; false for any IPv4 address.
inline bool is_link_local(const IpAddress& address) noexcept {
  return address.family == AF_INET6 && address.bytes[0] == 0xfe && address.bytes[1] >> 6 == 2;
}

// 127.0.0.0/8 or ::1; also an IPv4-mapped IPv6 address, because no frame may have one either.
inline bool is_loopback(const IpAddress& address) noexcept {
  if (address.family == AF_INET) return address.bytes[0] == 127;
  static constexpr uint8_t kLoopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(address.bytes, kLoopback, sizeof kLoopback) == 0 ||
         std::memcmp(address.bytes, kMapped, sizeof kMapped) == 0;
}

// 255.255.255.255.
inline bool is_limited_broadcast(const IpAddress& address) noexcept {
  return address.family == AF_INET && ipv4_of(address) == 0xffffffff;
}

// The MAC address of a group: RFC 1112, 6.4; RFC 2464, 7.
inline rte_ether_addr multicast_mac(const IpAddress& group) noexcept {
  BP_DCHECK(is_multicast(group));
  const uint8_t* bytes = group.bytes;
  if (group.family == AF_INET) {
    return {{0x01, 0x00, 0x5e, static_cast<uint8_t>(bytes[1] & 0x7f), bytes[2], bytes[3]}};
  }
  return {{0x33, 0x33, bytes[12], bytes[13], bytes[14], bytes[15]}};
}

// ff02::1:ffXX:XXXX, the group to which stations send solicitations for `address` (RFC 4291,
// 2.7.1).
inline IpAddress solicited_node(const IpAddress& address) noexcept {
  BP_DCHECK(address.family == AF_INET6 && !is_multicast(address));
  IpAddress group{AF_INET6, {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff}};
  std::memcpy(group.bytes + 13, address.bytes + 13, 3);
  return group;
}

// fe80::/64 with the interface identifier of RFC 4291, appendix A.
inline IpAddress link_local_of(const rte_ether_addr& mac) noexcept {
  const uint8_t* bytes = mac.addr_bytes;
  IpAddress address{AF_INET6, {0xfe, 0x80}};
  const uint8_t identifier[8] = {static_cast<uint8_t>(bytes[0] ^ 2),
                                 bytes[1],
                                 bytes[2],
                                 0xff,
                                 0xfe,
                                 bytes[3],
                                 bytes[4],
                                 bytes[5]};
  std::memcpy(address.bytes + 8, identifier, sizeof identifier);
  return address;
}

// ff02::X.
inline IpAddress link_group(uint8_t last) noexcept {
  return {AF_INET6, {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last}};
}

}  // namespace bedplate
