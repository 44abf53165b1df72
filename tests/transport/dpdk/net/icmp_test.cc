// ICMP: echo replies, refusals, and errors for sent datagrams.
#include "transport/dpdk/net/icmp_datapath.h"

#include <cerrno>

#include "tests/transport/dpdk/net/net_rig.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using namespace bedplate::frames;
using made_up::End;
using made_up::Rig;

TEST_GROUP(Icmp) {
  Rig rig;
  std::unique_ptr<End> end;

  void setup() override {
    rig.start();
    end = std::make_unique<End>(*rig.stack);
  }
  void teardown() override {
    end.reset();
    rig.stack.reset();
    CHECK(rig.port.pool.is_whole());
  }
  // A router's error for a datagram from port 5004 to 203.0.113.5:9, or to [2001:db8:1::5]:9.
  Bytes error4(uint8_t type, uint8_t code, uint16_t mtu, uint16_t port = 5004) {
    return icmp4_frame(
        "192.0.2.254", "192.0.2.1",
        Bytes{type, code, 0, 0, 0, 0} + be(mtu, 2) +
            ipv4("192.0.2.1", "203.0.113.5", udp("192.0.2.1", port, "203.0.113.5", 9, {})));
  }
  Bytes error6(uint8_t type, uint8_t code, uint32_t mtu) {
    return icmp6_frame(
        "2001:db8::fe", "2001:db8::1",
        Bytes{type, code, 0, 0} + be(mtu, 4) +
            ipv6("2001:db8::1", "2001:db8:1::5", udp("2001:db8::1", 5004, "2001:db8:1::5", 9, {})),
        64);
  }
};

TEST(Icmp, EchoIsAnswered) {
  const Bytes question = Bytes{8, 0, 0, 0, 0x12, 0x34, 0, 1} + text("payload of an odd length");
  rig.receive(icmp4_frame("192.0.2.9", "192.0.2.1", question));
  Bytes answer = question;
  answer[0] = 0;
  CHECK(rig.port.take_sent() ==
        ethernet(mac(kPeer), mac(kOwn), 0x0800,
                 ipv4("192.0.2.1", "192.0.2.9", with_sum(answer, 2), {.protocol = 1})));
  Bytes question6 = question;
  question6[0] = 128;
  rig.receive(icmp6_frame("fe80::9", "ff02::1", question6, 64));
  answer[0] = 129;
  CHECK(rig.port.take_sent() ==
        ethernet(mac(kPeer), mac(kOwn), 0x86dd,
                 ipv6("fe80::ff:fe00:1", "fe80::9", icmp6("fe80::ff:fe00:1", "fe80::9", answer),
                      {.protocol = 58})));
  rig.receive(ethernet(broadcast(), mac(kPeer), 0x0800,
                       ipv4("192.0.2.9", "192.0.2.255", with_sum(question, 2), {.protocol = 1})));
  LONGS_EQUAL(0, rig.port.sent.size());
  LONGS_EQUAL(2, rig.counters.echo_replies.read());
}

// A port may receive frames that are longer than its MTU. Their replies would not fit the link.
TEST(Icmp, AnEchoThatIsLongerThanTheLinkIsNotAnswered) {
  const auto ask = [this](uint32_t ip_bytes) {
    rig.receive(icmp4_frame("192.0.2.9", "192.0.2.1", Bytes{8} + Bytes(ip_bytes - 20 - 1, 0)));
    rig.receive(
        icmp6_frame("fe80::9", "2001:db8::1", Bytes{128} + Bytes(ip_bytes - 40 - 1, 0), 64));
  };
  ask(rig.port.mtu);
  LONGS_EQUAL(2, rig.port.sent.size());
  for (const Bytes& one : rig.port.sent) LONGS_EQUAL(14 + rig.port.mtu, one.size());
  ask(rig.port.mtu + 1);
  LONGS_EQUAL(2, rig.port.sent.size());
}

TEST(Icmp, AFloodOfEchoIsNotAnsweredWholly) {
  const Bytes question = icmp4_frame("192.0.2.9", "192.0.2.1", {8, 0, 0, 0, 0, 0, 0, 0});
  for (int i = 0; i < 100; ++i) rig.receive(question);
  LONGS_EQUAL(Icmp::kBurst, rig.port.sent.size());
  LONGS_EQUAL(100 - Icmp::kBurst, rig.dropped(PacketDrop::kRateLimited));
}

TEST(Icmp, APortThatNobodyHasIsRefused) {
  const Bytes frame = udp_frame("192.0.2.9", 7, "192.0.2.1", 5004, text("x"));
  rig.receive(frame);
  const Bytes packet = part(frame, 14);
  CHECK(rig.port.take_sent() ==
        ethernet(mac(kPeer), mac(kOwn), 0x0800,
                 ipv4("192.0.2.1", "192.0.2.9", with_sum(Bytes{3, 3, 0, 0, 0, 0, 0, 0} + packet, 2),
                      {.protocol = 1})));
  LONGS_EQUAL(1, rig.dropped(PacketDrop::kNoSocket));
  rig.receive(udp_frame("2001:db8::9", 7, "2001:db8::1", 5004, text("x")));
  const Bytes six = rig.port.take_sent();
  LONGS_EQUAL(1, six[54]);
  LONGS_EQUAL(4, six[55]);
}

TEST(Icmp, ErrorsReachTheSocketThatSent) {
  CHECK(end->open("0.0.0.0:5004").ok());
  const struct {
    uint8_t type, code;
    int expected;
  } cases[] = {{3, 0, ENETUNREACH},  {3, 1, EHOSTUNREACH},  {3, 2, ENOPROTOOPT},
               {3, 3, ECONNREFUSED}, {3, 13, EHOSTUNREACH}, {11, 0, EHOSTUNREACH},
               {12, 0, EPROTO}};
  for (const auto& one : cases) {
    end->failures.clear();
    rig.receive(error4(one.type, one.code, 0));
    LONGS_EQUAL(1, end->failures.size());
    LONGS_EQUAL(one.expected, end->failures[0].first);
    STRCMP_EQUAL("203.0.113.5:9", end->failures[0].second.c_str());
  }
  LONGS_EQUAL(0, rig.dropped());
}

TEST(Icmp, PathsBecomeNarrowAndWhatDoesNotFitIsRefused) {
  CHECK(end->open("0.0.0.0:5004").ok());
  rig.know("192.0.2.254");
  const Bytes bytes(1472);
  CHECK(end->send("203.0.113.5:9", bytes.data(), 1472).sent_count == 1);
  rig.receive(error4(3, 4, 1400));
  LONGS_EQUAL(EMSGSIZE, end->failures[0].first);
  const DatagramsSent refused = end->send("203.0.113.5:9", bytes.data(), 1373);
  LONGS_EQUAL(EMSGSIZE, refused.error_number);
  CHECK(end->send("203.0.113.5:9", bytes.data(), 1372).sent_count == 1);
  CHECK(end->send("203.0.113.6:9", bytes.data(), 1472).sent_count == 1);
  rig.advance(PathMtus::kLifeNs);
  rig.know("192.0.2.254");
  CHECK(end->send("203.0.113.5:9", bytes.data(), 1472).sent_count == 1);
}

TEST(Icmp, OfIpv6AsWell) {
  CHECK(end->open("[::]:5004").ok());
  rig.know("2001:db8::fe");
  rig.receive(error6(2, 0, 1300));
  rig.receive(error6(1, 4, 0));
  LONGS_EQUAL(2, end->failures.size());
  LONGS_EQUAL(EMSGSIZE, end->failures[0].first);
  LONGS_EQUAL(ECONNREFUSED, end->failures[1].first);
  const Bytes bytes(1300);
  LONGS_EQUAL(EMSGSIZE, end->send("[2001:db8:1::5]:9", bytes.data(), 1253).error_number);
  CHECK(end->send("[2001:db8:1::5]:9", bytes.data(), 1252).sent_count == 1);
  rig.receive(error6(2, 0, 1279));  // less than IPv6's minimum of 1280
  LONGS_EQUAL(1, rig.dropped(PacketDrop::kIcmp));
}

TEST(Icmp, WhatIsMadeUpIsNotBelieved) {
  CHECK(end->open("0.0.0.0:5004").ok());
  rig.receive(error4(3, 3, 0, 5005));  // no socket has this port
  rig.receive(error4(3, 4, 500));
  rig.receive(error4(3, 4, 1500));
  Bytes shorter = error4(3, 3, 0);
  rig.receive(icmp4_frame("192.0.2.254", "192.0.2.1", part(shorter, 34, 8 + 27)));
  const auto with_quote = [&](size_t offset, uint8_t value) {
    Bytes message = part(shorter, 34);
    message[offset] = value;
    rig.receive(icmp4_frame("192.0.2.254", "192.0.2.1", message));
  };
  with_quote(8 + 9, 6);    // TCP
  with_quote(8, 0x46);     // with options
  with_quote(8 + 7, 1);    // a later fragment
  with_quote(8 + 15, 99);  // sent by another station
  LONGS_EQUAL(8, rig.dropped(PacketDrop::kIcmp));
  LONGS_EQUAL(0, end->failures.size());
}
