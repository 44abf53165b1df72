#include "transport/dpdk/net/routes_datapath.h"

#include <cstring>

#include "platform/assert.h"

namespace bedplate {

void Routes::add(const IpPrefix& address) noexcept {
  BP_ASSERT(count_ < kAddressCountMax && !is_own(address));
  BP_ASSERT(address.prefix_bits <= address.byte_count() * 8U);
  Entry& entry = entries_[count_++];
  entry.prefix = address;
  uint8_t mask[16] = {};
  for (uint32_t i = 0; i < address.prefix_bits; ++i) {
    mask[i / 8] = static_cast<uint8_t>(mask[i / 8] | 0x80 >> i % 8);
  }
  std::memcpy(entry.mask, mask, sizeof mask);
}

void Routes::set_gateway(int family, const IpAddress& gateway) noexcept {
  BP_ASSERT(gateway.family == 0 || gateway.family == family);
  (family == AF_INET6 ? gateway6_ : gateway4_) = gateway;
}

uint32_t Routes::index_of(const IpAddress& address) const noexcept {
  for (uint32_t i = 0; i < count_; ++i) {
    if (is_same(entries_[i].prefix, address)) return i;
  }
  return kNone;
}

bool Routes::is_broadcast(const IpAddress& address) const noexcept {
  if (address.family != AF_INET) return false;
  if (is_limited_broadcast(address)) return true;
  const uint32_t value = rte_be_to_cpu_32(ipv4_of(address));
  for (uint32_t i = 0; i < count_; ++i) {
    const IpPrefix& prefix = entries_[i].prefix;
    // RFC 3021: a link with two stations has no broadcast address.
    if (prefix.family != AF_INET || prefix.prefix_bits > 30) continue;
    const uint32_t host_bits = ~uint32_t{0} >> prefix.prefix_bits;
    if (value == (rte_be_to_cpu_32(ipv4_of(prefix)) | host_bits)) return true;
  }
  return false;
}

uint32_t Routes::find_network(const IpAddress& address) const noexcept {
  uint64_t words[2];
  std::memcpy(words, address.bytes, sizeof words);
  for (uint32_t i = 0; i < count_; ++i) {
    const Entry& entry = entries_[i];
    if (entry.prefix.family != address.family) continue;
    uint64_t own[2];
    std::memcpy(own, entry.prefix.bytes, sizeof own);
    if (((words[0] ^ own[0]) & entry.mask[0]) == 0 && ((words[1] ^ own[1]) & entry.mask[1]) == 0) {
      return i;
    }
  }
  return kNone;
}

IpAddress Routes::next_hop(const IpAddress& to) const noexcept {
  BP_DCHECK(!is_multicast(to));
  if (is_on_link(to)) return to;
  return is_link_local(to) ? IpAddress{} : gateway(to.family);
}

IpAddress Routes::source_for(const IpAddress& to) const noexcept {
  // A group of ff02::/16, or of a narrower scope, stays on the link.
  const bool is_link_scope = to.family == AF_INET6 && is_multicast(to) && (to.bytes[1] & 0x0f) <= 2;
  const IpAddress hop = is_multicast(to) ? gateway(to.family) : next_hop(to);
  if (!is_link_scope && hop.family != 0) {
    const uint32_t network = find_network(hop);
    // A gateway's link-local address (RFC 4861) does not determine which of our addresses to use.
    const bool says = network != kNone && (!is_link_local(hop) || is_link_local(to));
    if (says) return entries_[network].prefix;
  }
  const IpAddress* second = nullptr;
  for (uint32_t i = 0; i < count_; ++i) {
    const IpPrefix& own = entries_[i].prefix;
    if (own.family != to.family) continue;
    if (is_link_local(own) == is_link_scope) return own;
    second = &own;
  }
  return second != nullptr ? *second : IpAddress{};
}

}  // namespace bedplate
