#include "transport/sockets/netlink.h"

#include <cerrno>
#include <cstring>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

namespace bedplate {

void NetlinkMessage::begin(uint16_t type, uint16_t flags, const void* body,
                           size_t body_bytes) noexcept {
  header().nlmsg_len = static_cast<uint32_t>(NLMSG_LENGTH(body_bytes));
  header().nlmsg_type = type;
  header().nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
  std::memcpy(NLMSG_DATA(&header()), body, body_bytes);
}

void NetlinkMessage::add(uint16_t type, const void* data, size_t data_bytes) noexcept {
  const size_t at = NLMSG_ALIGN(header().nlmsg_len);
  BP_ASSERT(at + RTA_SPACE(data_bytes) <= sizeof bytes_);
  auto* attribute = reinterpret_cast<rtattr*>(bytes_ + at);
  attribute->rta_type = type;
  attribute->rta_len = static_cast<uint16_t>(RTA_LENGTH(data_bytes));
  std::memcpy(RTA_DATA(attribute), data, data_bytes);
  header().nlmsg_len = static_cast<uint32_t>(at + RTA_LENGTH(data_bytes));
}

NetlinkMessage link_up_message(uint32_t interface_index, uint32_t mtu) noexcept {
  ifinfomsg link = {};
  link.ifi_index = static_cast<int>(interface_index);
  link.ifi_flags = IFF_UP;
  link.ifi_change = IFF_UP;
  NetlinkMessage message(RTM_NEWLINK, 0, link);
  if (mtu != 0) message.add(IFLA_MTU, mtu);
  return message;
}

NetlinkMessage address_message(uint32_t interface_index, const IpPrefix& address) noexcept {
  ifaddrmsg body = {};
  body.ifa_family = static_cast<uint8_t>(address.family);
  body.ifa_prefixlen = address.prefix_bits;
  body.ifa_index = interface_index;
  // Skips duplicate address detection: it would keep anybody from listening at an IPv6 address for
  // a second.
  if (address.family == AF_INET6) body.ifa_flags = IFA_F_NODAD;
  NetlinkMessage message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, body);
  message.add(IFA_LOCAL, address.bytes, address.byte_count());
  message.add(IFA_ADDRESS, address.bytes, address.byte_count());
  return message;
}

NetlinkMessage default_route_message(uint32_t interface_index, const IpAddress& gateway) noexcept {
  rtmsg body = {};
  body.rtm_family = static_cast<uint8_t>(gateway.family);
  body.rtm_table = RT_TABLE_MAIN;
  body.rtm_protocol = RTPROT_BOOT;
  body.rtm_scope = RT_SCOPE_UNIVERSE;
  body.rtm_type = RTN_UNICAST;
  NetlinkMessage message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, body);
  message.add(RTA_GATEWAY, gateway.bytes, gateway.byte_count());
  message.add(RTA_OIF, interface_index);
  return message;
}

NetlinkMessage route_question(const IpAddress& address) noexcept {
  rtmsg body = {};
  body.rtm_family = static_cast<uint8_t>(address.family);
  body.rtm_dst_len = static_cast<uint8_t>(address.byte_count() * 8);
  NetlinkMessage message(RTM_GETROUTE, 0, body);
  message.add(RTA_DST, address.bytes, address.byte_count());
  return message;
}

Result<void> NetlinkSocket::create(int part) noexcept {
  socket_ = Fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, part));
  if (socket_.is_open()) return {};
  return error_from_errno("opening a netlink socket")
      .set_cure("boot a kernel with %s", part == NETLINK_ROUTE ? "networking" : "RDMA");
}

int NetlinkSocket::request(NetlinkMessage& message) noexcept { return exchange(message, {}); }

int NetlinkSocket::exchange(NetlinkMessage& message, std::span<std::byte> answer) noexcept {
  message.header().nlmsg_seq = ++sequence_;
  const nlmsghdr& header = message.header();
  if (send(socket_.number(), &header, header.nlmsg_len, 0) < 0) return errno;
  // The acknowledgement repeats the request after its error number.
  alignas(nlmsghdr) std::byte word[1024];
  for (;;) {
    const ssize_t received = recv(socket_.number(), word, sizeof word, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) return errno;
    const auto* acknowledgement = reinterpret_cast<const nlmsghdr*>(word);
    const auto byte_count = static_cast<size_t>(received);
    if (byte_count < NLMSG_LENGTH(sizeof(nlmsgerr))) return EBADMSG;
    if (acknowledgement->nlmsg_seq != sequence_) continue;
    if (acknowledgement->nlmsg_type != NLMSG_ERROR) {
      if (byte_count > answer.size()) return EBADMSG;
      std::memcpy(answer.data(), word, byte_count);
      continue;
    }
    return -static_cast<const nlmsgerr*>(NLMSG_DATA(acknowledgement))->error;
  }
}

uint32_t NetlinkSocket::interface_toward(const IpAddress& address) noexcept {
  NetlinkMessage question = route_question(address);
  alignas(nlmsghdr) std::byte answer[1024] = {};
  if (exchange(question, answer) != 0) return 0;
  const auto& header = *reinterpret_cast<const nlmsghdr*>(answer);
  if (header.nlmsg_type != RTM_NEWROUTE || header.nlmsg_len > sizeof answer) return 0;
  const auto* at = reinterpret_cast<const rtattr*>(answer + NLMSG_SPACE(sizeof(rtmsg)));
  for (auto left = static_cast<int>(RTM_PAYLOAD(&header)); RTA_OK(at, left);
       at = RTA_NEXT(at, left)) {
    uint32_t index = 0;
    if (at->rta_type != RTA_OIF || RTA_PAYLOAD(at) != sizeof index) continue;
    std::memcpy(&index, RTA_DATA(at), sizeof index);
    return index;
  }
  return 0;
}

}  // namespace bedplate
