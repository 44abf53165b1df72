// Frames as bytes, built and parsed by independent test code: the packet layer's slow reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/sockets/datagram_address.h"

namespace bedplate::frames {

using Bytes = std::vector<uint8_t>;

inline constexpr uint8_t kOwn[6] = {0x02, 0, 0, 0, 0, 0x01};
inline constexpr uint8_t kPeer[6] = {0x02, 0, 0, 0, 0, 0x02};

inline Bytes mac(const uint8_t (&bytes)[6]) { return {bytes, bytes + 6}; }
inline Bytes broadcast() { return Bytes(6, 0xff); }

inline Bytes& operator+=(Bytes& to, const Bytes& more) {
  to.insert(to.end(), more.begin(), more.end());
  return to;
}
inline Bytes operator+(Bytes left, const Bytes& right) { return left += right; }

inline Bytes be(uint64_t value, uint32_t count) {
  Bytes bytes;
  for (uint32_t i = count; i-- > 0;) bytes.push_back(static_cast<uint8_t>(value >> 8 * i));
  return bytes;
}
inline uint32_t number(const Bytes& bytes, size_t offset, uint32_t count) {
  uint32_t value = 0;
  for (uint32_t i = 0; i < count; ++i) value = value << 8 | bytes.at(offset + i);
  return value;
}
inline Bytes part(const Bytes& bytes, size_t offset, size_t count = ~size_t{0}) {
  if (offset >= bytes.size()) return {};
  const size_t end = count > bytes.size() - offset ? bytes.size() : offset + count;
  return {bytes.begin() + static_cast<long>(offset), bytes.begin() + static_cast<long>(end)};
}
inline Bytes text(const std::string& words) { return {words.begin(), words.end()}; }

inline IpAddress ip(const std::string& words) { return parse_ip_address(words).value(); }
inline Bytes ip_bytes(const std::string& words) {
  const IpAddress address = ip(words);
  return {address.bytes, address.bytes + address.byte_count()};
}
inline bool is_ipv6(const std::string& words) { return words.find(':') != std::string::npos; }

// The checksum of RFC 1071, in its plain form.
inline uint16_t sum(const Bytes& bytes) {
  uint32_t total = 0;
  for (size_t i = 0; i < bytes.size(); i += 2) {
    total += uint32_t{bytes[i]} << 8;
    if (i + 1 < bytes.size()) total += bytes[i + 1];
    total = (total & 0xffff) + (total >> 16);
  }
  return static_cast<uint16_t>(~total);
}
inline Bytes with_sum(Bytes bytes, size_t offset, const Bytes& before = {}) {
  bytes.at(offset) = bytes.at(offset + 1) = 0;
  const Bytes made = be(sum(before + bytes), 2);
  std::copy(made.begin(), made.end(), bytes.begin() + static_cast<long>(offset));
  return bytes;
}
inline Bytes pseudo(const std::string& from, const std::string& to, uint8_t protocol,
                    size_t count) {
  return ip_bytes(from) + ip_bytes(to) + be(count, 4) + be(protocol, 4);
}

inline Bytes ethernet(const Bytes& to, const Bytes& from, uint16_t type, const Bytes& rest) {
  return to + from + be(type, 2) + rest;
}
// From the peer to the port.
inline Bytes to_us(uint16_t type, const Bytes& rest) {
  return ethernet(mac(kOwn), mac(kPeer), type, rest);
}

struct Ip {
  uint8_t protocol = 17;
  uint8_t traffic_class = 0;
  uint8_t hops = 64;
  uint16_t fragment = 0x4000;
  Bytes options = {};  // of IPv4; or IPv6's extension headers, the last of which names `protocol`
  uint8_t first_extension = 0;
};
inline Bytes ipv4(const std::string& from, const std::string& to, const Bytes& rest,
                  const Ip& fields = {}) {
  const size_t header = 20 + fields.options.size();
  Bytes made = {static_cast<uint8_t>(0x40 | header / 4), fields.traffic_class};
  made += be(header + rest.size(), 2) + be(0, 2) + be(fields.fragment, 2) +
          Bytes{fields.hops, fields.protocol, 0, 0} + ip_bytes(from) + ip_bytes(to) +
          fields.options;
  return with_sum(made, 10) + rest;
}
inline Bytes ipv6(const std::string& from, const std::string& to, const Bytes& rest,
                  const Ip& fields = {}) {
  const uint8_t next = fields.options.empty() ? fields.protocol : fields.first_extension;
  return be(6U << 28 | uint32_t{fields.traffic_class} << 20, 4) +
         be(fields.options.size() + rest.size(), 2) + Bytes{next, fields.hops} + ip_bytes(from) +
         ip_bytes(to) + fields.options + rest;
}
inline Bytes ip_frame(const std::string& from, const std::string& to, const Bytes& rest,
                      const Ip& fields = {}) {
  return is_ipv6(from) ? to_us(0x86dd, ipv6(from, to, rest, fields))
                       : to_us(0x0800, ipv4(from, to, rest, fields));
}
inline Bytes udp(const std::string& from, uint16_t from_port, const std::string& to,
                 uint16_t to_port, const Bytes& payload) {
  const Bytes made =
      be(from_port, 2) + be(to_port, 2) + be(8 + payload.size(), 2) + be(0, 2) + payload;
  return with_sum(made, 6, pseudo(from, to, 17, made.size()));
}
inline Bytes udp_frame(const std::string& from, uint16_t from_port, const std::string& to,
                       uint16_t to_port, const Bytes& payload, const Ip& fields = {}) {
  return ip_frame(from, to, udp(from, from_port, to, to_port, payload), fields);
}

inline Bytes arp(uint16_t operation, const Bytes& station, const std::string& from,
                 const std::string& target, const Bytes& target_station = Bytes(6, 0)) {
  return be(1, 2) + be(0x0800, 2) + Bytes{6, 4} + be(operation, 2) + station + ip_bytes(from) +
         target_station + ip_bytes(target);
}

inline Bytes icmp6(const std::string& from, const std::string& to, const Bytes& message) {
  return with_sum(message, 2, pseudo(from, to, 58, message.size()));
}
inline Bytes icmp6_frame(const std::string& from, const std::string& to, const Bytes& message,
                         uint8_t hops = 255) {
  return to_us(0x86dd, ipv6(from, to, icmp6(from, to, message), {.protocol = 58, .hops = hops}));
}
inline Bytes icmp4_frame(const std::string& from, const std::string& to, const Bytes& message) {
  return to_us(0x0800, ipv4(from, to, with_sum(message, 2), {.protocol = 1}));
}

// Neighbour discovery, with the option that carries a MAC address.
inline Bytes solicitation(const std::string& target, const Bytes& station) {
  return Bytes{135, 0, 0, 0} + be(0, 4) + ip_bytes(target) + Bytes{1, 1} + station;
}
inline Bytes advertisement(const std::string& target, const Bytes& station, uint8_t flags) {
  return Bytes{136, 0, 0, 0, flags, 0, 0, 0} + ip_bytes(target) + Bytes{2, 1} + station;
}

}  // namespace bedplate::frames
