// Netlink: the few requests that bring up an interface (rtnetlink(7)) or an RDMA device, and that
// find the interface toward an address.
//
// A message is built in place, in a fixed array, and sent. The kernel sends the wanted data, if
// any, and then an acknowledgement with one error number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <linux/rtnetlink.h>

#include "platform/file.h"
#include "platform/result.h"
#include "transport/sockets/ip_address.h"

namespace bedplate {

// One request, which asks for its acknowledgement.
class NetlinkMessage {
 public:
  // `body` is the fixed part of this type of message: ifinfomsg, ifaddrmsg, rtmsg.
  template <typename Body>
  NetlinkMessage(uint16_t type, uint16_t flags, const Body& body) noexcept {
    begin(type, flags, &body, sizeof body);
  }

  // A message without a fixed part.
  NetlinkMessage(uint16_t type, uint16_t flags) noexcept { begin(type, flags, "", 0); }

  // Appends an attribute. Requires: it fits.
  void add(uint16_t type, const void* data, size_t data_bytes) noexcept;
  void add(uint16_t type, uint32_t number) noexcept { add(type, &number, sizeof number); }

  const nlmsghdr& header() const noexcept { return *reinterpret_cast<const nlmsghdr*>(bytes_); }
  nlmsghdr& header() noexcept { return *reinterpret_cast<nlmsghdr*>(bytes_); }

 private:
  void begin(uint16_t type, uint16_t flags, const void* body, size_t body_bytes) noexcept;

  alignas(nlmsghdr) std::byte bytes_[256] = {};
};

// `mtu` 0: leaves the MTU as it is.
NetlinkMessage link_up_message(uint32_t interface_index, uint32_t mtu) noexcept;
NetlinkMessage address_message(uint32_t interface_index, const IpPrefix& address) noexcept;
NetlinkMessage default_route_message(uint32_t interface_index, const IpAddress& gateway) noexcept;
// Asks for the route to `address`.
NetlinkMessage route_question(const IpAddress& address) noexcept;

// A socket to one netlink family: NETLINK_ROUTE, NETLINK_RDMA.
class NetlinkSocket {
 public:
  // Errors (kSystem): the kernel lacks networking, or RDMA.
  Result<void> create(int part = NETLINK_ROUTE) noexcept;
  // Sends `message` and waits for the acknowledgement. Returns 0 or an errno value.
  int request(NetlinkMessage& message) noexcept;
  // Sends route_question(address) and waits for the answer. Returns the interface's index; 0: no
  // route leads there, or the request failed.
  uint32_t interface_toward(const IpAddress& address) noexcept;

 private:
  // Sends `message`. `answer` gets the message before the acknowledgement, if there is one. Returns
  // 0 or an errno value; EBADMSG: that message is malformed, or too long for `answer`.
  int exchange(NetlinkMessage& message, std::span<std::byte> answer) noexcept;

  Fd socket_;
  uint32_t sequence_ = 0;
};

}  // namespace bedplate
