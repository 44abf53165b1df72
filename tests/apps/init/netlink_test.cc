// Netlink messages, read with the kernel's macros, and their effects in a network namespace of a
// child.
#include "transport/sockets/netlink.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/init/machine.h"
#include "apps/init/network.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Returns the attribute `type` behind the `Body` of `message`. Checks that `message` has it.
template <typename Body>
const rtattr& attribute_of(const NetlinkMessage& message, uint16_t type) {
  const nlmsghdr& header = message.header();
  auto* at = reinterpret_cast<const rtattr*>(static_cast<const char*>(NLMSG_DATA(&header)) +
                                             NLMSG_ALIGN(sizeof(Body)));
  auto left = static_cast<int>(header.nlmsg_len - NLMSG_LENGTH(sizeof(Body)));
  const rtattr* found = nullptr;
  for (; RTA_OK(at, left); at = RTA_NEXT(at, left)) {
    if (at->rta_type == type) found = at;
  }
  LONGS_EQUAL(0, left);
  CHECK(found != nullptr);
  return *found;
}

uint32_t number_of(const rtattr& attribute) {
  LONGS_EQUAL(RTA_LENGTH(sizeof(uint32_t)), attribute.rta_len);
  uint32_t number;
  std::memcpy(&number, RTA_DATA(&attribute), sizeof number);
  return number;
}

template <typename Body>
const Body& body_of(const NetlinkMessage& message) {
  return *static_cast<const Body*>(NLMSG_DATA(&message.header()));
}

bool has_address(const char* interface, const char* wanted) {
  ifaddrs* all = nullptr;
  getifaddrs(&all);
  bool found = false;
  for (ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || std::strcmp(each->ifa_name, interface) != 0) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (each->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(each->ifa_addr)->sin_addr, text,
                sizeof text);
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(each->ifa_addr)->sin6_addr, text,
                sizeof text);
    }
    found = found || std::strcmp(text, wanted) == 0;
  }
  freeifaddrs(all);
  return found;
}

int mtu_of(const char* interface) {
  ifreq request = {};
  std::strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
  const Fd any(socket(AF_INET, SOCK_DGRAM, 0));
  return ioctl(any.number(), SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : -1;
}

// Sends messages to the kernel, in a network with only a loopback device. Returns 0, or the number
// of the failed step; 100: the namespace cannot be made.
int run_steps() {
  if (unshare(CLONE_NEWNET) != 0) return 100;
  NetlinkSocket kernel;
  if (!kernel.create().ok()) return 1;
  const uint32_t lo = if_nametoindex("lo");
  NetlinkMessage up = link_up_message(lo, 1400);
  if (kernel.request(up) != 0 || mtu_of("lo") != 1400) return 2;
  NetlinkMessage four = address_message(lo, *parse_ip_prefix("10.9.8.7/24"));
  if (kernel.request(four) != 0 || !has_address("lo", "10.9.8.7")) return 3;
  if (kernel.request(four) != EEXIST) return 4;
  NetlinkMessage six = address_message(lo, *parse_ip_prefix("fd00::7/64"));
  if (kernel.request(six) != 0 || !has_address("lo", "fd00::7")) return 5;
  NetlinkMessage route = default_route_message(lo, *parse_ip_address("10.9.8.1"));
  if (kernel.request(route) != 0) return 6;
  NetlinkMessage far = default_route_message(lo, *parse_ip_address("172.16.0.1"));
  if (kernel.request(far) == 0) return 7;
  NetlinkMessage nowhere = link_up_message(4711, 0);
  if (kernel.request(nowhere) != ENODEV) return 8;
  return 0;
}

// Like run_steps(): counts the bytes that a closed connection has not sent yet.
int run_sending_steps() {
  if (unshare(CLONE_NEWNET) != 0) return 100;
  NetlinkSocket kernel;
  NetlinkMessage up = link_up_message(if_nametoindex("lo"), 0);
  if (!kernel.create().ok() || kernel.request(up) != 0) return 1;
  const Fd listener(socket(AF_INET, SOCK_STREAM, 0));
  const Fd reader(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {.sin_family = AF_INET,
                         .sin_port = htons(10809),
                         .sin_addr = {htonl(INADDR_LOOPBACK)},
                         .sin_zero = {}};
  auto* where = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.number(), where, sizeof address) != 0 || listen(listener.number(), 1) != 0 ||
      connect(reader.number(), where, sizeof address) != 0 || unsent_bytes() != 0) {
    return 2;
  }
  static char bytes[64 << 10];
  uint64_t sent_bytes = 0;
  {
    const Fd writer(accept4(listener.number(), nullptr, nullptr, SOCK_NONBLOCK));
    ssize_t put;
    while ((put = write(writer.number(), bytes, sizeof bytes)) > 0) {
      sent_bytes += static_cast<uint64_t>(put);
    }
  }
  if (const uint64_t unsent = unsent_bytes(); unsent == 0 || unsent > sent_bytes + 1) return 3;
  ssize_t got;
  while ((got = read(reader.number(), bytes, sizeof bytes)) > 0) {
    sent_bytes -= static_cast<uint64_t>(got);
  }
  if (sent_bytes != 0) return 4;
  return wait_for_device("what was sent", [] { return unsent_bytes() == 0; }) ? 0 : 5;
}

void expect_steps_in_child(int (*steps)()) {
  const pid_t child = fork();
  if (child == 0) _exit(steps());
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  if (WEXITSTATUS(status) == 100) BP_SKIP("this user may not make a network namespace");
  LONGS_EQUAL(0, WEXITSTATUS(status));
}

}  // namespace

TEST_GROUP(Netlink){};

TEST(Netlink, ALinkComesUpWithItsMtu) {
  const NetlinkMessage message = link_up_message(7, 9000);
  LONGS_EQUAL(RTM_NEWLINK, message.header().nlmsg_type);
  LONGS_EQUAL(NLM_F_REQUEST | NLM_F_ACK, message.header().nlmsg_flags);
  LONGS_EQUAL(7, body_of<ifinfomsg>(message).ifi_index);
  LONGS_EQUAL(IFF_UP, body_of<ifinfomsg>(message).ifi_flags);
  LONGS_EQUAL(IFF_UP, body_of<ifinfomsg>(message).ifi_change);
  LONGS_EQUAL(9000, number_of(attribute_of<ifinfomsg>(message, IFLA_MTU)));
  LONGS_EQUAL(NLMSG_LENGTH(sizeof(ifinfomsg)), link_up_message(7, 0).header().nlmsg_len);
}

TEST(Netlink, AnAddressHasItsPrefix) {
  const NetlinkMessage message = address_message(3, *parse_ip_prefix("10.0.2.15/24"));
  LONGS_EQUAL(RTM_NEWADDR, message.header().nlmsg_type);
  LONGS_EQUAL(AF_INET, body_of<ifaddrmsg>(message).ifa_family);
  LONGS_EQUAL(24, body_of<ifaddrmsg>(message).ifa_prefixlen);
  LONGS_EQUAL(3, body_of<ifaddrmsg>(message).ifa_index);
  LONGS_EQUAL(htonl(0x0A00020F), number_of(attribute_of<ifaddrmsg>(message, IFA_LOCAL)));
  LONGS_EQUAL(htonl(0x0A00020F), number_of(attribute_of<ifaddrmsg>(message, IFA_ADDRESS)));
}

TEST(Netlink, AnIpv6AddressIsNotWaitedFor) {
  const NetlinkMessage message = address_message(3, *parse_ip_prefix("fd00::2/64"));
  LONGS_EQUAL(AF_INET6, body_of<ifaddrmsg>(message).ifa_family);
  LONGS_EQUAL(IFA_F_NODAD, body_of<ifaddrmsg>(message).ifa_flags);
  LONGS_EQUAL(RTA_LENGTH(16), attribute_of<ifaddrmsg>(message, IFA_LOCAL).rta_len);
}

TEST(Netlink, ARouteLeadsOut) {
  const NetlinkMessage message = default_route_message(3, *parse_ip_address("10.0.2.2"));
  LONGS_EQUAL(RTM_NEWROUTE, message.header().nlmsg_type);
  LONGS_EQUAL(0, body_of<rtmsg>(message).rtm_dst_len);
  LONGS_EQUAL(RT_TABLE_MAIN, body_of<rtmsg>(message).rtm_table);
  LONGS_EQUAL(htonl(0x0A000202), number_of(attribute_of<rtmsg>(message, RTA_GATEWAY)));
  LONGS_EQUAL(3, number_of(attribute_of<rtmsg>(message, RTA_OIF)));
}

TEST(Netlink, TheKernelDoesAndRefusesAsAsked) { expect_steps_in_child(&run_steps); }

TEST(Netlink, WhatAClosedConnectionHasNotSentIsCounted) {
  expect_steps_in_child(&run_sending_steps);
}
