// The kinds of addresses, and the MAC addresses and groups that are derived from an address.
#include "transport/dpdk/net/ip_words_datapath.h"

#include <string>

#include "tests/transport/dpdk/net/frames.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using frames::ip;

TEST_GROUP(IpWords){};

TEST(IpWords, KindsAreTold) {
  CHECK(is_multicast(ip("224.0.0.1")) && is_multicast(ip("239.255.255.255")));
  CHECK(!is_multicast(ip("223.1.1.1")) && !is_multicast(ip("240.0.0.1")));
  CHECK(is_multicast(ip("ff02::1")) && !is_multicast(ip("fe80::1")));
  CHECK(is_link_local(ip("fe80::1")) && is_link_local(ip("febf::1")));
  CHECK(!is_link_local(ip("fec0::1")) && !is_link_local(ip("169.254.0.1")));
  CHECK(is_loopback(ip("127.9.9.9")) && is_loopback(ip("::1")) &&
        is_loopback(ip("::ffff:1.2.3.4")));
  CHECK(!is_loopback(ip("128.0.0.1")) && !is_loopback(ip("::2")));
  CHECK(is_unspecified(ip("0.0.0.0")) && is_unspecified(ip("::")) && !is_unspecified(ip("::1")));
  CHECK(is_limited_broadcast(ip("255.255.255.255")) && !is_limited_broadcast(ip("ffff::")));
  CHECK(is_same(ip("1.2.3.4"), ip("1.2.3.4")) && !is_same(ip("1.2.3.4"), ip("1.2.3.5")));
  CHECK(!is_same(ip("::1"), ip("::2")) && !is_same(ip("0.0.0.0"), ip("::")));
}

TEST(IpWords, GroupsHaveTheirMac) {
  const rte_ether_addr four = multicast_mac(ip("239.129.2.3"));
  const rte_ether_addr expected4 = {{0x01, 0x00, 0x5e, 0x01, 0x02, 0x03}};
  CHECK(rte_is_same_ether_addr(&four, &expected4));
  const rte_ether_addr six = multicast_mac(ip("ff02::1:ff12:3456"));
  const rte_ether_addr expected6 = {{0x33, 0x33, 0xff, 0x12, 0x34, 0x56}};
  CHECK(rte_is_same_ether_addr(&six, &expected6));
  CHECK(is_same(solicited_node(ip("2001:db8::12:3456")), ip("ff02::1:ff12:3456")));
  CHECK(is_same(link_local_of({{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}}),
                ip("fe80::11:22ff:fe33:4455")));
  CHECK(is_same(link_group(0x16), ip("ff02::16")));
}
