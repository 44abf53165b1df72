// Parses frames cut at every byte, and tests each rule of the headers alone.
#include "transport/dpdk/net/packet_datapath.h"

#include <string>

#include "tests/transport/dpdk/net/frames.h"
#include "tests/transport/dpdk/net/made_up_port.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using namespace bedplate::frames;

TEST_GROUP(ParsedPacket) {
  made_up::Port port;
  ::bedplate::ParsedPacket packet;
  PacketFilter filter{.mac = {{0x02, 0, 0, 0, 0, 0x01}}};

  PacketDrop parse(const Bytes& bytes, uint64_t flags = 0) {
    rte_mbuf* frame = port.frame(bytes);
    frame->ol_flags = flags;
    const PacketDrop cause = parse_packet(frame, filter, packet);
    rte_pktmbuf_free(frame);
    return cause;
  }
  void expect(PacketDrop cause, const Bytes& bytes, int line) {
    STRCMP_EQUAL_LOCATION(to_text(cause), to_text(parse(bytes)), "", __FILE__,
                          static_cast<size_t>(line));
  }
};
#define EXPECT_DROP(cause, ...) expect(PacketDrop::cause, __VA_ARGS__, __LINE__)

TEST(ParsedPacket, NothingShorterThanItsHeadersIsTaken) {
  const Bytes frames_[] = {
      udp_frame("192.0.2.9", 7, "192.0.2.1", 9, text("payload")),
      udp_frame("2001:db8::9", 7, "2001:db8::1", 9, text("payload")),
      to_us(0x0806, arp(1, mac(kPeer), "192.0.2.9", "192.0.2.1")),
      icmp4_frame("192.0.2.9", "192.0.2.1", {8, 0, 0, 0, 1, 2, 3, 4}),
      icmp6_frame("fe80::9", "ff02::1", {128, 0, 0, 0, 1, 2, 3, 4}),
      ip_frame("192.0.2.9", "224.0.0.1", with_sum(Bytes{0x11, 10, 0, 0, 0, 0, 0, 0}, 2),
               {.protocol = 2}),
      udp_frame("2001:db8::9", 7, "2001:db8::1", 9, text("payload"),
                {.options = {17, 0, 1, 4, 0, 0, 0, 0}, .first_extension = 60})};
  for (const Bytes& whole : frames_) {
    CHECK(parse(whole) == PacketDrop::kNone);
    CHECK(parse(whole + Bytes(18, 0xee)) == PacketDrop::kNone);  // padding
    for (size_t count = 0; count < whole.size(); ++count) {
      CHECK(parse(part(whole, 0, count)) != PacketDrop::kNone);
    }
  }
  CHECK(parse(udp_frame("192.0.2.9", 7, "192.0.2.1", 9, text("x")) + Bytes(18, 0xee)) ==
        PacketDrop::kNone);
  LONGS_EQUAL(1, packet.payload_bytes);
}

TEST(ParsedPacket, EthernetIsForThisStation) {
  const Bytes rest = ipv4("192.0.2.9", "192.0.2.1", udp("192.0.2.9", 7, "192.0.2.1", 9, {}));
  EXPECT_DROP(kNone, ethernet(mac(kOwn), mac(kPeer), 0x0800, rest));
  EXPECT_DROP(kOtherMac, ethernet({2, 0, 0, 0, 0, 9}, mac(kPeer), 0x0800, rest));
  EXPECT_DROP(kOtherMac, ethernet(mac(kOwn), {3, 0, 0, 0, 0, 9}, 0x0800, rest));
  EXPECT_DROP(kOtherMac, ethernet(broadcast(), mac(kOwn), 0x0800, rest));
  EXPECT_DROP(kEtherType, ethernet(mac(kOwn), mac(kPeer), 0x88cc, rest));
  EXPECT_DROP(kEtherType, ethernet(mac(kOwn), mac(kPeer), 0x88a8, rest));
  EXPECT_DROP(kNone,
              ethernet(mac(kOwn), mac(kPeer), 0x8100, be(5 << 13, 2) + be(0x0800, 2) + rest));
  EXPECT_DROP(kOtherVlan, ethernet(mac(kOwn), mac(kPeer), 0x8100, be(5, 2) + be(0x0800, 2) + rest));
  EXPECT_DROP(kTooShort, ethernet(mac(kOwn), mac(kPeer), 0x8100, be(5, 2)));
}

TEST(ParsedPacket, Ipv4IsRead) {
  const Bytes inner = udp("192.0.2.9", 7, "192.0.2.1", 9, text("abc"));
  const auto frame = [&](const Ip& fields) {
    return to_us(0x0800, ipv4("192.0.2.9", "192.0.2.1", inner, fields));
  };
  EXPECT_DROP(kFragment, frame({.fragment = 0x2000}));
  EXPECT_DROP(kFragment, frame({.fragment = 1}));
  EXPECT_DROP(kNone, frame({.options = {1, 148, 4, 0, 0, 0, 0, 0}}));
  CHECK(packet.has_router_alert && packet.payload_bytes == 3);
  EXPECT_DROP(kRoutingHeader, frame({.options = {131, 3, 4, 0}}));
  EXPECT_DROP(kRoutingHeader, frame({.options = {137, 3, 4, 0}}));
  EXPECT_DROP(kIpHeader, frame({.options = {68, 1, 0, 0}}));
  EXPECT_DROP(kIpHeader, frame({.options = {68, 5, 0, 0}}));
  EXPECT_DROP(kIpHeader, frame({.options = {1, 1, 1, 68}}));
  EXPECT_DROP(kNone, frame({.options = {0, 0xff, 0xff, 0xff}}));  // beyond the end of options
  EXPECT_DROP(kProtocol, frame({.protocol = 6}));
  EXPECT_DROP(kProtocol, frame({.protocol = 58}));
  Bytes bad = frame({});
  bad[14] = 0x44;
  EXPECT_DROP(kIpHeader, bad);
  bad[14] = 0x65;
  EXPECT_DROP(kIpHeader, bad);
  bad = frame({});
  bad[22] ^= 1;
  EXPECT_DROP(kIpChecksum, bad);
  CHECK(parse(bad, RTE_MBUF_F_RX_IP_CKSUM_GOOD) == PacketDrop::kNone);
  CHECK(parse(frame({}), RTE_MBUF_F_RX_IP_CKSUM_BAD) == PacketDrop::kIpChecksum);
  for (const char* from : {"224.0.0.1", "127.0.0.1", "255.255.255.255", "0.0.0.0"}) {
    EXPECT_DROP(kIpSource, udp_frame(from, 7, "192.0.2.1", 9, {}));
  }
  EXPECT_DROP(kIpDestination, udp_frame("192.0.2.9", 7, "127.0.0.1", 9, {}));
  EXPECT_DROP(kIpDestination, udp_frame("192.0.2.9", 7, "0.0.0.0", 9, {}));
}

TEST(ParsedPacket, Ipv6IsReadThroughItsExtensions) {
  const Bytes inner = udp("2001:db8::9", 7, "2001:db8::1", 9, text("abc"));
  const auto frame = [&](const Bytes& extensions, uint8_t first, uint8_t protocol = 17) {
    return to_us(0x86dd,
                 ipv6("2001:db8::9", "2001:db8::1", inner,
                      {.protocol = protocol, .options = extensions, .first_extension = first}));
  };
  const auto options = [](uint8_t next, const Bytes& some = {1, 4, 0, 0, 0, 0}) {
    return Bytes{next, 0} + some;
  };
  EXPECT_DROP(kNone, frame({}, 0));
  EXPECT_DROP(kNone, frame(options(60) + options(17), 0));
  EXPECT_DROP(kExtensionHeaders, frame(options(0) + options(17), 60));  // hop-by-hop is the first
  EXPECT_DROP(kNone, frame(options(60) + options(60) + options(60) + options(17), 0));
  EXPECT_DROP(kExtensionHeaders,
              frame(options(60) + options(60) + options(60) + options(60) + options(17), 0));
  EXPECT_DROP(kRoutingHeader, frame(options(17), 43));
  EXPECT_DROP(kFragment, frame(options(17), 44));
  EXPECT_DROP(kProtocol, frame(options(17), 51));
  EXPECT_DROP(kProtocol, frame({}, 0, 59));
  EXPECT_DROP(kExtensionHeaders, frame(options(17, {0xc2, 4, 0, 0, 0, 0}), 0));  // jumbo
  EXPECT_DROP(kNone, frame(options(17, {0x1e, 4, 0, 0, 0, 0}), 0));  // unknown, to be skipped
  EXPECT_DROP(kExtensionHeaders, frame(options(17, {0x1e, 5, 0, 0, 0, 0}), 0));
  EXPECT_DROP(kNone, frame(options(17, {5, 2, 0, 0, 1, 0}), 0));
  CHECK(packet.has_router_alert);
  EXPECT_DROP(kIpHeader, frame(Bytes{17, 200, 0, 0, 0, 0, 0, 0}, 60));
  EXPECT_DROP(kExtensionHeaders, frame(Bytes{17, 32} + Bytes(262, 0), 60));
  Bytes bad = frame({}, 0);
  bad[14] = 0x45;
  EXPECT_DROP(kIpHeader, bad);
  EXPECT_DROP(kIpSource, udp_frame("ff02::1", 7, "2001:db8::1", 9, {}));
  EXPECT_DROP(kIpSource, udp_frame("::1", 7, "2001:db8::1", 9, {}));
  EXPECT_DROP(kIpSource, udp_frame("::ffff:1.2.3.4", 7, "2001:db8::1", 9, {}));
  EXPECT_DROP(kIpSource, udp_frame("::", 7, "2001:db8::1", 9, {}));
}

TEST(ParsedPacket, UdpIsWholeAndItsSumRight) {
  Bytes inner = udp("192.0.2.9", 7, "192.0.2.1", 9, text("abc"));
  const auto frame = [&] { return ip_frame("192.0.2.9", "192.0.2.1", inner); };
  EXPECT_DROP(kNone, frame());
  LONGS_EQUAL(7, packet.from_port);
  LONGS_EQUAL(9, packet.to_port);
  inner[10] ^= 1;
  EXPECT_DROP(kUdpChecksum, frame());
  CHECK(parse(frame(), RTE_MBUF_F_RX_L4_CKSUM_GOOD) == PacketDrop::kNone);
  CHECK(parse(frame(), RTE_MBUF_F_RX_L4_CKSUM_NONE) == PacketDrop::kNone);
  inner[6] = inner[7] = 0;
  EXPECT_DROP(kNone, frame());
  inner[5] = 12;
  EXPECT_DROP(kUdpLength, frame());
  inner[5] = 7;
  EXPECT_DROP(kUdpLength, frame());
  inner[5] = 10;  // shorter than its packet: the rest is ignored
  EXPECT_DROP(kNone, frame());
  LONGS_EQUAL(2, packet.payload_bytes);
  inner = udp("2001:db8::9", 7, "2001:db8::1", 9, text("abc"));
  inner[6] = inner[7] = 0;
  EXPECT_DROP(kUdpChecksum, ip_frame("2001:db8::9", "2001:db8::1", inner));
  CHECK(parse(udp_frame("192.0.2.9", 7, "192.0.2.1", 9, {}), RTE_MBUF_F_RX_L4_CKSUM_BAD) ==
        PacketDrop::kUdpChecksum);
}

TEST(ParsedPacket, SumsOfIcmpAndIgmpAreLookedAt) {
  Bytes bad = icmp4_frame("192.0.2.9", "192.0.2.1", {8, 0, 0, 0, 1, 2, 3, 4});
  bad.back() ^= 1;
  EXPECT_DROP(kIcmp, bad);
  bad = icmp6_frame("fe80::9", "ff02::1", {128, 0, 0, 0, 1, 2, 3, 4});
  bad.back() ^= 1;
  EXPECT_DROP(kIcmp, bad);
  bad = ip_frame("192.0.2.9", "224.0.0.1", with_sum(Bytes{0x11, 10, 0, 0, 0, 0, 0, 0}, 2),
                 {.protocol = 2});
  bad.back() ^= 1;
  EXPECT_DROP(kGroups, bad);
}
