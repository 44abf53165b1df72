// The next hop and the source address of a packet.
#include "transport/dpdk/net/routes_datapath.h"

#include <string>

#include "tests/support/death_test.h"
#include "tests/transport/dpdk/net/frames.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using frames::ip;

TEST_GROUP(Routes) {
  Routes routes;
  void setup() override {
    for (const char* one :
         {"192.0.2.1/24", "10.1.2.3/30", "198.51.100.0/31", "2001:db8::1/64", "fe80::1/64"}) {
      routes.add(*parse_ip_prefix(one));
    }
  }
  std::string hop(const char* to) {
    return (DatagramAddress{routes.next_hop(ip(to)), 0, 0}).text();
  }
  std::string source(const char* to) {
    return (DatagramAddress{routes.source_for(ip(to)), 0, 0}).text();
  }
};

TEST(Routes, NeighboursAreReachedThemselvesAndOthersByTheGateway) {
  STRCMP_EQUAL("192.0.2.77:0", hop("192.0.2.77").c_str());
  STRCMP_EQUAL("none:0", hop("192.0.3.77").c_str());
  routes.set_gateway(AF_INET, ip("10.1.2.2"));
  STRCMP_EQUAL("10.1.2.2:0", hop("192.0.3.77").c_str());
  STRCMP_EQUAL("10.1.2.3:0", source("192.0.3.77").c_str());
  STRCMP_EQUAL("192.0.2.1:0", source("192.0.2.77").c_str());
  STRCMP_EQUAL("[2001:db8::5]:0", hop("2001:db8::5").c_str());
  STRCMP_EQUAL("none:0", hop("2001:db9::5").c_str());
  routes.set_gateway(AF_INET6, ip("fe80::99"));
  STRCMP_EQUAL("[fe80::99]:0", hop("2001:db9::5").c_str());
  STRCMP_EQUAL("[2001:db8::1]:0", source("2001:db9::5").c_str());  // not the link-local address
  STRCMP_EQUAL("[fe80::1]:0", source("fe80::5").c_str());
  STRCMP_EQUAL("[fe80::1]:0", source("ff02::16").c_str());
  STRCMP_EQUAL("[2001:db8::1]:0", source("ff0e::16").c_str());
  STRCMP_EQUAL("10.1.2.3:0", source("239.1.1.1").c_str());
}

TEST(Routes, BroadcastsAndOwnAddressesAreKnown) {
  CHECK(routes.is_own(ip("10.1.2.3")) && !routes.is_own(ip("10.1.2.2")));
  CHECK(routes.is_broadcast(ip("192.0.2.255")) && routes.is_broadcast(ip("255.255.255.255")));
  CHECK(!routes.is_broadcast(ip("192.0.2.254")));
  CHECK(!routes.is_broadcast(ip("198.51.100.1")));  // RFC 3021
}

TEST(Routes, WhatIsThereTwiceOrOfTheOtherFamilyIsAProgrammingError) {
  IpPrefix prefix = *parse_ip_prefix("192.0.2.1/16");
  BP_CHECK_DIES("!is_own(address)", routes.add(prefix));
  prefix = *parse_ip_prefix("203.0.113.1/24");
  prefix.prefix_bits = 33;  // more bits than an address has
  BP_CHECK_DIES("address.prefix_bits <= ", routes.add(prefix));
  BP_CHECK_DIES("gateway.family == family", routes.set_gateway(AF_INET6, ip("192.0.2.2")));
}
