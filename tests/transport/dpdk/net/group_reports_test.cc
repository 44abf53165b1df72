// IGMP and MLD as a router of the link sees them.
#include "transport/dpdk/net/group_reports_datapath.h"

#include "tests/transport/dpdk/net/net_rig.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using namespace bedplate::frames;
using made_up::End;
using made_up::Rig;

TEST_GROUP(GroupReports) {
  static constexpr uint64_t kSecond = 1'000'000'000;
  Rig rig;
  std::unique_ptr<End> end, six;

  void setup() override {
    rig.start();
    pass(3);  // the reports of the solicited-node groups are repeated
    rig.port.sent.clear();
    end = std::make_unique<End>(*rig.stack);
    six = std::make_unique<End>(*rig.stack);
    CHECK(end->open("0.0.0.0:5004").ok());
    CHECK(six->open("[::]:5004").ok());
  }
  void teardown() override {
    end.reset();
    six.reset();
    rig.stack.reset();
    CHECK(rig.port.pool.is_whole());
  }
  void pass(int seconds) {
    for (int i = 0; i < 10 * seconds; ++i) rig.advance(kSecond / 10);
  }
  static Bytes report4(const Bytes& message, const char* to, const Bytes& station) {
    return ethernet(
        station, mac(kOwn), 0x0800,
        ipv4("192.0.2.1", to, with_sum(message, 2),
             {.protocol = 2, .traffic_class = 0xc0, .hops = 1, .options = {148, 4, 0, 0}}));
  }
  static Bytes v3(uint8_t type, const std::string& group, const std::vector<std::string>& sources) {
    Bytes message =
        Bytes{0x22, 0, 0, 0, 0, 0, 0, 1, type, 0} + be(sources.size(), 2) + ip_bytes(group);
    for (const std::string& one : sources) message += ip_bytes(one);
    return report4(message, "224.0.0.22", {1, 0, 0x5e, 0, 0, 22});
  }
  static Bytes v2(const Bytes& message, const std::string& from = "fe80::ff:fe00:1") {
    return ethernet({0x33, 0x33, 0, 0, 0, 0x16}, mac(kOwn), 0x86dd,
                    ipv6(from, "ff02::16", icmp6(from, "ff02::16", message),
                         {.protocol = 58,
                          .hops = 1,
                          .options = {58, 0, 5, 2, 0, 0, 1, 0},
                          .first_extension = 0}));
  }
  void query4(const Bytes& message, const char* to = "224.0.0.1") {
    rig.receive(ethernet({1, 0, 0x5e, 0, 0, 1}, mac(kPeer), 0x0800,
                         ipv4("192.0.2.254", to, with_sum(message, 2),
                              {.protocol = 2, .hops = 1, .options = {148, 4, 0, 0}})));
  }
  void query6(const Bytes& message, const char* from = "fe80::fe", uint8_t hops = 1,
              const Bytes& options = {58, 0, 5, 2, 0, 0, 1, 0}) {
    rig.receive(
        ethernet({0x33, 0x33, 0, 0, 0, 1}, mac(kPeer), 0x86dd,
                 ipv6(from, "ff02::1", icmp6(from, "ff02::1", message),
                      {.protocol = 58, .hops = hops, .options = options, .first_extension = 0})));
  }
  void expect(const Bytes& frame) {
    LONGS_EQUAL(1, rig.port.sent.size());
    CHECK(rig.port.take_sent() == frame);
  }
};

TEST(GroupReports, AJoinIsReportedTwiceAndALeaveToo) {
  CHECK(end->socket.join(ip("239.1.1.1"), {}, nullptr).ok());
  rig.advance();
  expect(v3(4, "239.1.1.1", {}));
  pass(2);
  expect(v3(4, "239.1.1.1", {}));
  pass(10);
  LONGS_EQUAL(0, rig.port.sent.size());
  CHECK(end->socket.leave(ip("239.1.1.1"), {}, nullptr).ok());
  rig.advance();
  expect(v3(3, "239.1.1.1", {}));
  pass(2);
  expect(v3(3, "239.1.1.1", {}));
}

TEST(GroupReports, SourcesAreSaidAsTheyAreNow) {
  CHECK(end->socket.join(ip("232.1.1.1"), ip("192.0.2.8"), nullptr).ok());
  rig.advance();
  expect(v3(3, "232.1.1.1", {"192.0.2.8"}));
  CHECK(end->socket.join(ip("232.1.1.1"), ip("192.0.2.9"), nullptr).ok());
  rig.advance();
  expect(v3(3, "232.1.1.1", {"192.0.2.8", "192.0.2.9"}));
  CHECK(end->socket.leave(ip("232.1.1.1"), ip("192.0.2.8"), nullptr).ok());
  rig.advance();
  expect(v3(3, "232.1.1.1", {"192.0.2.9"}));
}

TEST(GroupReports, QueriesAreAnsweredWithinTheirTime) {
  CHECK(end->socket.join(ip("239.1.1.1"), {}, nullptr).ok());
  CHECK(end->socket.join(ip("232.1.1.1"), ip("192.0.2.8"), nullptr).ok());
  pass(3);
  rig.port.sent.clear();
  query4({0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0});
  LONGS_EQUAL(0, rig.dropped());
  pass(1);
  const Bytes both = Bytes{0x22, 0, 0, 0, 0, 0, 0, 2} + Bytes{2, 0, 0, 0} + ip_bytes("239.1.1.1") +
                     Bytes{1, 0, 0, 1} + ip_bytes("232.1.1.1") + ip_bytes("192.0.2.8");
  expect(report4(both, "224.0.0.22", {1, 0, 0x5e, 0, 0, 22}));
  query4(Bytes{0x11, 10, 0, 0} + ip_bytes("239.1.1.1") + Bytes{2, 125, 0, 0}, "239.1.1.1");
  pass(1);
  expect(v3(2, "239.1.1.1", {}));
  query4(Bytes{0x11, 10, 0, 0} + ip_bytes("239.1.1.2") + Bytes{2, 125, 0, 0}, "224.0.0.1");
  pass(1);
  LONGS_EQUAL(0, rig.port.sent.size());
}

TEST(GroupReports, AnOldQuerierIsAnsweredInItsWords) {
  CHECK(end->socket.join(ip("239.1.1.1"), {}, nullptr).ok());
  pass(3);
  rig.port.sent.clear();
  query4({0x11, 10, 0, 0, 0, 0, 0, 0});
  pass(1);
  expect(report4(Bytes{0x16, 0, 0, 0} + ip_bytes("239.1.1.1"), "239.1.1.1", {1, 0, 0x5e, 1, 1, 1}));
  CHECK(end->socket.leave(ip("239.1.1.1"), {}, nullptr).ok());
  rig.advance();
  expect(report4(Bytes{0x17, 0, 0, 0} + ip_bytes("239.1.1.1"), "224.0.0.2", {1, 0, 0x5e, 0, 0, 2}));
  pass(2);
  rig.port.sent.clear();
  rig.advance(260'000'000'000);  // RFC 3376, 8.12
  CHECK(end->socket.join(ip("239.1.1.1"), {}, nullptr).ok());
  rig.advance();
  expect(v3(4, "239.1.1.1", {}));
}

TEST(GroupReports, OfIpv6ByMld) {
  CHECK(six->socket.join(ip("ff3e::1"), ip("2001:db8::8"), nullptr).ok());
  rig.advance();
  expect(v2(Bytes{143, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 1} + ip_bytes("ff3e::1") +
            ip_bytes("2001:db8::8")));
  pass(2);
  rig.port.sent.clear();
  query6(Bytes{130, 0, 0, 0} + be(1000, 2) + be(0, 2) + ip_bytes("ff3e::1") + Bytes{2, 125, 0, 0});
  pass(1);
  expect(v2(Bytes{143, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1} + ip_bytes("ff3e::1") +
            ip_bytes("2001:db8::8")));
  query6(Bytes{130, 0, 0, 0} + be(1000, 2) + be(0, 2) + ip_bytes("ff3e::1"));
  pass(1);
  const Bytes old = rig.port.take_sent();
  LONGS_EQUAL(131, old[14 + 40 + 8]);
  CHECK(part(old, 38, 16) == ip_bytes("ff3e::1"));
}

TEST(GroupReports, TheSolicitedNodeGroupsAreReported) {
  query6(Bytes{130, 0, 0, 0} + be(1000, 2) + be(0, 2) + Bytes(16, 0) + Bytes{2, 125, 0, 0});
  pass(1);
  const Bytes report = rig.port.take_sent();
  // One group for both addresses, which have the same last 24 bits.
  CHECK(part(report, 62) != Bytes{});
  LONGS_EQUAL(1, number(report, 62 + 6, 2));
  CHECK(part(report, 62 + 12, 16) == ip_bytes("ff02::1:ff00:1"));
}

TEST(GroupReports, NonsenseIsDropped) {
  query4({0x11, 10, 0, 0, 0, 0, 0, 0, 2});
  query4({0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 1});  // a source is missing
  query4(Bytes{0x11, 10, 0, 0} + ip_bytes("192.0.2.1") + Bytes{2, 125, 0, 0});  // no group
  const Bytes good =
      Bytes{130, 0, 0, 0} + be(1000, 2) + be(0, 2) + Bytes(16, 0) + Bytes{2, 125, 0, 0};
  query6(good, "2001:db8::fe");
  query6(good, "fe80::fe", 2);
  query6(good, "fe80::fe", 1, {58, 0, 1, 4, 0, 0, 0, 0});
  query6(part(good, 0, 25));
  LONGS_EQUAL(7, rig.dropped(PacketDrop::kGroups));
  pass(11);
  LONGS_EQUAL(0, rig.port.sent.size());
}
