#include "transport/sockets/ip_address.h"

#include <arpa/inet.h>

#include "platform/text_words.h"

namespace bedplate {

uint32_t IpAddress::byte_count() const noexcept { return family == AF_INET ? 4 : 16; }

bool IpAddress::is_multicast() const noexcept {
  return family == AF_INET ? bytes[0] >> 4 == 14 : family == AF_INET6 && bytes[0] == 0xFF;
}

bool IpPrefix::contains(const IpAddress& address) const noexcept {
  if (address.family != family) return false;
  for (uint32_t i = 0; i < prefix_bits; ++i) {
    const int mask = 0x80 >> (i % 8);
    if (((bytes[i / 8] ^ address.bytes[i / 8]) & mask) != 0) return false;
  }
  return true;
}

std::optional<IpAddress> parse_ip_address(const std::string& text) {
  if (text.find('\0') != std::string::npos) return {};  // inet_pton would end there
  for (const int family : {AF_INET, AF_INET6}) {
    IpAddress address;
    address.family = family;
    if (inet_pton(family, text.c_str(), address.bytes) == 1) return address;
  }
  return {};
}

std::optional<IpPrefix> parse_ip_prefix(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return {};
  const auto address = parse_ip_address(text.substr(0, slash));
  if (!address) return {};
  IpPrefix prefix{*address};
  if (!parse_number(std::string_view(text).substr(slash + 1), &prefix.prefix_bits)) return {};
  if (prefix.prefix_bits == 0 || prefix.prefix_bits > prefix.byte_count() * 8) return {};
  return prefix;
}

}  // namespace bedplate
