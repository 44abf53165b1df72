// ARP and neighbour discovery as stations on the link see them.
#include "transport/dpdk/net/discovery_datapath.h"

#include "tests/transport/dpdk/net/net_rig.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using namespace bedplate::frames;
using made_up::Rig;

TEST_GROUP(Discovery) {
  Rig rig;
  void teardown() override {
    rig.stack.reset();
    CHECK(rig.port.pool.is_whole());
  }
  Bytes from_us(const std::string& from, const std::string& to, const Bytes& message,
                const Bytes& station) {
    return ethernet(station, mac(kOwn), 0x86dd,
                    ipv6(from, to, icmp6(from, to, message), {.protocol = 58, .hops = 255}));
  }
  std::string gateway() {
    return (DatagramAddress{rig.stack->routes().gateway(AF_INET6), 0, 0}).text();
  }
};

TEST(Discovery, TellsTheLinkItsAddressesAtTheStart) {
  rig.make().start(rig.time());
  CHECK(rig.port.take_sent() ==
        ethernet(broadcast(), mac(kOwn), 0x0806, arp(1, mac(kOwn), "192.0.2.1", "192.0.2.1")));
  CHECK(rig.port.take_sent() == from_us("2001:db8::1", "ff02::1",
                                        advertisement("2001:db8::1", mac(kOwn), 0x20),
                                        {0x33, 0x33, 0, 0, 0, 1}));
  CHECK(rig.port.take_sent() == from_us("fe80::ff:fe00:1", "ff02::1",
                                        advertisement("fe80::ff:fe00:1", mac(kOwn), 0x20),
                                        {0x33, 0x33, 0, 0, 0, 1}));
}

TEST(Discovery, AnswersForItsOwnAddressesAlone) {
  rig.start();
  rig.receive(ethernet(broadcast(), mac(kPeer), 0x0806,
                       arp(1, mac(kPeer), "192.0.2.9", "192.0.2.1") + Bytes(18, 0)));
  CHECK(rig.port.take_sent() == ethernet(mac(kPeer), mac(kOwn), 0x0806,
                                         arp(2, mac(kOwn), "192.0.2.1", "192.0.2.9", mac(kPeer))));
  rig.receive(
      ethernet(broadcast(), mac(kPeer), 0x0806, arp(1, mac(kPeer), "192.0.2.9", "192.0.2.7")));
  rig.receive(
      ethernet(broadcast(), mac(kPeer), 0x0806, arp(1, mac(kPeer), "0.0.0.0", "192.0.2.1")));
  CHECK(part(rig.port.take_sent(), 0, 6) == mac(kPeer));  // a probe of RFC 5227 is answered
  LONGS_EQUAL(0, rig.port.sent.size());
  const Bytes group = {0x33, 0x33, 0xff, 0, 0, 1};
  const Bytes question = solicitation("2001:db8::1", mac(kPeer));
  rig.receive(ethernet(
      group, mac(kPeer), 0x86dd,
      ipv6("2001:db8::9", "ff02::1:ff00:1", icmp6("2001:db8::9", "ff02::1:ff00:1", question),
           {.protocol = 58, .hops = 255})));
  CHECK(rig.port.take_sent() == from_us("2001:db8::1", "2001:db8::9",
                                        advertisement("2001:db8::1", mac(kOwn), 0x60), mac(kPeer)));
  rig.receive(icmp6_frame("2001:db8::9", "2001:db8::1", solicitation("2001:db8::7", mac(kPeer))));
  LONGS_EQUAL(0, rig.port.sent.size());
  LONGS_EQUAL(0, rig.dropped());
}

TEST(Discovery, AsksByNeighbourSolicitation) {
  rig.start();
  DatagramRoute route;
  LONGS_EQUAL(0, rig.stack->socket_parts().route_finder.find(ip("2001:db8::12:3456"), {},
                                                             rig.now_ns, route));
  CHECK(rig.port.take_sent() == from_us("2001:db8::1", "ff02::1:ff12:3456",
                                        solicitation("2001:db8::12:3456", mac(kOwn)),
                                        {0x33, 0x33, 0xff, 0x12, 0x34, 0x56}));
  rig.answer_for("2001:db8::12:3456");
  CHECK(rig.stack->neighbours().find(ip("2001:db8::12:3456"))->state ==
        Neighbour::State::kReachable);
}

TEST(Discovery, DefendsItsAddressesNotTooOften) {
  rig.start();
  const Bytes claim =
      ethernet(broadcast(), mac(kPeer), 0x0806, arp(1, mac(kPeer), "192.0.2.1", "192.0.2.1"));
  rig.receive(claim);
  CHECK(rig.port.take_sent() ==
        ethernet(broadcast(), mac(kOwn), 0x0806, arp(1, mac(kOwn), "192.0.2.1", "192.0.2.1")));
  rig.receive(claim);
  LONGS_EQUAL(0, rig.port.sent.size());
  rig.advance(Discovery::kDefendNs);
  rig.port.sent.clear();
  rig.receive(claim);
  LONGS_EQUAL(1, rig.port.sent.size());
  LONGS_EQUAL(3, rig.counters.address_conflicts.read());
  rig.port.sent.clear();
  // A station that is about to take an address solicits it with the source :: (RFC 4862).
  Bytes probe = part(solicitation("2001:db8::1", mac(kPeer)), 0, 24);
  rig.receive(icmp6_frame("::", "ff02::1:ff00:1", probe));
  CHECK(rig.port.take_sent() == from_us("2001:db8::1", "ff02::1",
                                        advertisement("2001:db8::1", mac(kOwn), 0x20),
                                        {0x33, 0x33, 0, 0, 0, 1}));
  rig.advance(Discovery::kDefendNs);
  rig.receive(
      icmp6_frame("2001:db8::1", "ff02::1", advertisement("2001:db8::1", mac(kPeer), 0x20)));
  LONGS_EQUAL(5, rig.counters.address_conflicts.read());
}

TEST(Discovery, DefendsEachOfItsAddresses) {
  rig.start();
  rig.receive(
      ethernet(broadcast(), mac(kPeer), 0x0806, arp(1, mac(kPeer), "192.0.2.1", "192.0.2.1")));
  LONGS_EQUAL(1, rig.port.sent.size());
  rig.port.sent.clear();
  rig.receive(
      icmp6_frame("2001:db8::1", "ff02::1", advertisement("2001:db8::1", mac(kPeer), 0x20)));
  CHECK(rig.port.take_sent() == from_us("2001:db8::1", "ff02::1",
                                        advertisement("2001:db8::1", mac(kOwn), 0x20),
                                        {0x33, 0x33, 0, 0, 0, 1}));
  LONGS_EQUAL(2, rig.counters.address_conflicts.read());
}

TEST(Discovery, NonsenseIsDroppedAndLearnsNothing) {
  rig.start();
  rig.know("192.0.2.9");
  rig.know("2001:db8::9");
  const auto drops_arp = [&](const Bytes& message) {
    const uint64_t before = rig.dropped(PacketDrop::kArp);
    rig.receive(to_us(0x0806, message));
    CHECK(rig.dropped(PacketDrop::kArp) == before + 1);
  };
  Bytes good = arp(2, mac(kPeer), "192.0.2.9", "192.0.2.1");
  for (const size_t offset : {0U, 2U, 4U, 5U}) {
    Bytes bad = good;
    ++bad[offset];
    drops_arp(bad);
  }
  drops_arp(arp(3, mac(kPeer), "192.0.2.9", "192.0.2.1"));
  drops_arp(arp(2, broadcast(), "192.0.2.9", "192.0.2.1"));
  drops_arp(arp(2, Bytes(6, 0), "192.0.2.9", "192.0.2.1"));
  drops_arp(arp(2, mac(kPeer), "224.0.0.1", "192.0.2.1"));
  drops_arp(arp(2, mac(kPeer), "192.0.2.255", "192.0.2.1"));
  const auto drops = [&](const Bytes& frame) {
    const uint64_t before = rig.dropped(PacketDrop::kNeighbour);
    rig.receive(frame);
    CHECK(rig.dropped(PacketDrop::kNeighbour) == before + 1);
  };
  const Bytes other = {2, 0, 0, 0, 0, 0x66};
  const Bytes fine = advertisement("2001:db8::9", other, 0x20);
  drops(icmp6_frame("2001:db8::9", "2001:db8::1", fine, 254));
  Bytes bad = fine;
  bad[1] = 1;
  drops(icmp6_frame("2001:db8::9", "2001:db8::1", bad));
  bad = fine;
  bad[25] = 0;
  drops(icmp6_frame("2001:db8::9", "2001:db8::1", bad));
  bad[25] = 2;
  drops(icmp6_frame("2001:db8::9", "2001:db8::1", bad));
  drops(icmp6_frame("2001:db8::9", "2001:db8::1", part(fine, 0, 20)));
  drops(icmp6_frame("2001:db8::9", "ff02::1", advertisement("2001:db8::9", other, 0x60)));
  drops(icmp6_frame("2001:db8::9", "2001:db8::1", advertisement("ff02::9", other, 0x20)));
  drops(icmp6_frame("::", "ff02::1:ff00:1", solicitation("2001:db8::1", mac(kPeer))));
  LONGS_EQUAL(2, rig.stack->neighbours().find(ip("2001:db8::9"))->mac.addr_bytes[5]);
  LONGS_EQUAL(2, rig.stack->neighbours().find(ip("192.0.2.9"))->mac.addr_bytes[5]);
  rig.receive(icmp6_frame("2001:db8::9", "2001:db8::1", fine));
  LONGS_EQUAL(0x66, rig.stack->neighbours().find(ip("2001:db8::9"))->mac.addr_bytes[5]);
}

TEST(Discovery, FollowsARouterForAsLongAsItSays) {
  rig.options.gateway6 = {};
  rig.options.takes_routers = true;
  rig.make().start(rig.time());
  const Bytes asked = rig.port.sent.back();
  LONGS_EQUAL(133, asked[54]);
  rig.advance(Discovery::kRouterAskNs);
  rig.advance(Discovery::kRouterAskNs);
  size_t count = 0;
  for (const Bytes& one : rig.port.sent) count += one.size() == 70 && one[54] == 133;
  LONGS_EQUAL(3, count);
  const auto announce = [&](const char* from, uint16_t seconds) {
    rig.receive(icmp6_frame(
        from, "ff02::1",
        Bytes{134, 0, 0, 0, 64, 0} + be(seconds, 2) + be(0, 8) + Bytes{1, 1} + mac(kPeer)));
  };
  announce("2001:db8::fe", 1800);
  STRCMP_EQUAL("none:0", gateway().c_str());
  LONGS_EQUAL(1, rig.dropped(PacketDrop::kNeighbour));
  announce("fe80::9", 1800);
  STRCMP_EQUAL("[fe80::9]:0", gateway().c_str());
  announce("fe80::8", 1800);  // the first router stays
  STRCMP_EQUAL("[fe80::9]:0", gateway().c_str());
  announce("fe80::9", 0);
  rig.advance();
  STRCMP_EQUAL("none:0", gateway().c_str());
  announce("fe80::8", 10);
  rig.advance(9'999'999'999);
  STRCMP_EQUAL("[fe80::8]:0", gateway().c_str());
  rig.advance(1);
  STRCMP_EQUAL("none:0", gateway().c_str());
}

// Other code holds the routes by reference and could clear the gateway. Frames would then go
// nowhere, and no router would be solicited.
TEST(Discovery, IsNotValidWithARouterThatIsNoGateway) {
  rig.options.gateway6 = {};
  rig.options.takes_routers = true;
  rig.start();
  rig.receive(icmp6_frame("fe80::9", "ff02::1", Bytes{134, 0, 0, 0, 64, 0, 7, 8} + be(0, 8)));
  auto& routes = const_cast<Routes&>(rig.stack->routes());
  CHECK(rig.stack->is_valid());
  routes.set_gateway(AF_INET6, {});
  CHECK(!rig.stack->is_valid());
  routes.set_gateway(AF_INET6, ip("fe80::9"));
  CHECK(rig.stack->is_valid());
}

TEST(Discovery, AConfiguredGatewayStays) {
  rig.options.takes_routers = true;
  rig.start();
  rig.receive(icmp6_frame("fe80::9", "ff02::1", Bytes{134, 0, 0, 0, 64, 0, 7, 8} + be(0, 8)));
  STRCMP_EQUAL("[2001:db8::fe]:0", gateway().c_str());
}
