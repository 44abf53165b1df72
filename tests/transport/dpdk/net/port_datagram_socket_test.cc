// Datagrams through the packet layer over a simulated port: their metadata, their routes, the bytes
// that are copied, and that no buffer is lost.
#include "transport/dpdk/net/port_datagram_socket.h"

#include <cerrno>

#include "tests/support/death_test.h"
#include "tests/transport/dpdk/net/port_datagram_rig.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using namespace bedplate::frames;
using made_up::at;
using made_up::End;
using made_up::Rig;

TEST_GROUP_BASE(PortDatagramSocket, made_up::PortDatagramBodies){};

TEST(PortDatagramSocket, ReceivesWithAllThatTheHeadersSay) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  rig.receive(udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, text("hello"), {.traffic_class = 2}));
  LONGS_EQUAL(1, end.all.size());
  const ReceivedDatagram& got = end.all[0].datagram;
  CHECK(end.all[0].bytes == text("hello"));
  STRCMP_EQUAL("192.0.2.9:7000", got.from.text().c_str());
  STRCMP_EQUAL("192.0.2.1:0", (DatagramAddress{got.to, 0, 0}).text().c_str());
  CHECK(got.ecn == Ecn::kCapable0 && !got.is_truncated && got.segment_bytes == 0);
  CHECK(got.received_ns == rig.time().wall_ns);
  LONGS_EQUAL(0, rig.dropped());

  End& six = open("[::]:5004");
  rig.receive(udp_frame("2001:db8::9", 7000, "2001:db8::1", 5004, text("six")));
  LONGS_EQUAL(1, six.all.size());
  STRCMP_EQUAL("[2001:db8::9]:7000", six.all[0].datagram.from.text().c_str());
  LONGS_EQUAL(1, end.all.size());
}

TEST(PortDatagramSocket, AnEmptyDatagramIsOneToo) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  rig.receive(udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, {}));
  LONGS_EQUAL(1, end.all.size());
  rig.know("192.0.2.9");
  CHECK(end.send("192.0.2.9:7000", "").status == DatagramStatus::kDone);
  CHECK(rig.port.take_sent() ==
        ethernet(mac(kPeer), mac(kOwn), 0x0800,
                 ipv4("192.0.2.1", "192.0.2.9", udp("192.0.2.1", 5004, "192.0.2.9", 7000, {}))));
}

TEST(PortDatagramSocket, SendsWhatTheReferenceMakes) {
  rig.start();
  DatagramOptions options = make().options("0.0.0.0:5004");
  options.service_class = 46;
  CHECK(ends.back()->open(options).ok());
  rig.know("192.0.2.9");
  OutgoingDatagram one;
  const std::string words = "odd bytes";
  one.bytes = reinterpret_cast<const std::byte*>(words.data());
  one.byte_count = 9;
  one.to = at("192.0.2.9:7000");
  one.ecn = Ecn::kCapable1;
  CHECK(ends.back()->socket.send_batch({&one, 1}).sent_count == 1);
  const Bytes expected =
      ipv4("192.0.2.1", "192.0.2.9", udp("192.0.2.1", 5004, "192.0.2.9", 7000, text(words)),
           {.traffic_class = 46 << 2 | 1});
  CHECK(rig.port.take_sent() == ethernet(mac(kPeer), mac(kOwn), 0x0800, expected));

  End& six = open("[::]:6000");
  rig.know("2001:db8::9");
  CHECK(six.send("[2001:db8::9]:1", "x").status == DatagramStatus::kDone);
  const Bytes expected6 =
      ipv6("2001:db8::1", "2001:db8::9", udp("2001:db8::1", 6000, "2001:db8::9", 1, text("x")));
  CHECK(rig.port.take_sent() == ethernet(mac(kPeer), mac(kOwn), 0x86dd, expected6));
  LONGS_EQUAL(10, rig.counters.sent_bytes.read());
  LONGS_EQUAL(2, rig.counters.sent_datagrams.read());
}

TEST(PortDatagramSocket, AVlanIsOnAllFramesAndNoOtherIsTaken) {
  rig.options.vlan = 7;
  rig.start();
  End& end = open("0.0.0.0:5004");
  const Bytes packet =
      ipv4("192.0.2.9", "192.0.2.1", udp("192.0.2.9", 7, "192.0.2.1", 5004, text("tagged")));
  rig.receive(to_us(0x8100, be(7, 2) + be(0x0800, 2) + packet));
  LONGS_EQUAL(1, end.all.size());
  rig.receive(to_us(0x8100, be(8, 2) + be(0x0800, 2) + packet));
  rig.receive(to_us(0x0800, packet));
  LONGS_EQUAL(2, rig.dropped(PacketDrop::kOtherVlan));
  rte_mbuf* stripped = rig.port.frame(to_us(0x0800, packet));
  stripped->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
  stripped->vlan_tci = 5 << 13 | 7;
  rig.receive(stripped);
  LONGS_EQUAL(2, end.all.size());
  const SocketParts& parts = rig.stack->socket_parts();
  DatagramRoute route;
  parts.route_finder.find(ip("192.0.2.9"), {}, parts.time.now_ns, route);
  const Bytes asked = rig.port.take_sent();
  CHECK(part(asked, 12, 6) == be(0x8100, 2) + be(7, 2) + be(0x0806, 2));
}

TEST(PortDatagramSocket, WaitsForANeighbourInOrderAndKeepsNothingOfTheCaller) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  std::string words = "first";
  CHECK(end.send("192.0.2.9:7000", words).status == DatagramStatus::kDone);
  words = "later";
  CHECK(end.send("192.0.2.9:7000", words).status == DatagramStatus::kDone);
  words = "xxxxx";
  LONGS_EQUAL(1, rig.port.sent.size());
  CHECK(rig.port.take_sent() ==
        ethernet(broadcast(), mac(kOwn), 0x0806, arp(1, mac(kOwn), "192.0.2.1", "192.0.2.9")));
  rig.answer_for("192.0.2.9");
  LONGS_EQUAL(2, rig.port.sent.size());
  CHECK(part(rig.port.take_sent(), 42) == text("first"));
  const Bytes second = rig.port.take_sent();
  CHECK(part(second, 42) == text("later"));
  CHECK(part(second, 0, 6) == mac(kPeer));
}

TEST(PortDatagramSocket, WhatAStationThatIsNotThereWasSentFails) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  end.send("192.0.2.9:7000", "lost");
  for (int i = 0; i < 3; ++i) rig.advance(Neighbours::kRetransmitNs);
  LONGS_EQUAL(1, end.failures.size());
  LONGS_EQUAL(EHOSTUNREACH, end.failures[0].first);
  STRCMP_EQUAL("192.0.2.9:7000", end.failures[0].second.c_str());
  LONGS_EQUAL(1, rig.dropped(PacketDrop::kUnresolved));
}

TEST(PortDatagramSocket, FarAddressesGoByTheGateway) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  rig.know("192.0.2.254");
  CHECK(end.send("203.0.113.5:9", "far").status == DatagramStatus::kDone);
  CHECK(part(rig.port.take_sent(), 30, 4) == ip_bytes("203.0.113.5"));
  End& six = open("[::]:5004");
  rig.know("2001:db8::fe");
  CHECK(six.send("[2001:db8:1::5]:9", "far").status == DatagramStatus::kDone);
}

TEST(PortDatagramSocket, RefusalsSayWhy) {
  rig.options.gateway4 = {};
  rig.start();
  End& end = open("0.0.0.0:5004");
  const auto refused = [&](OutgoingDatagram one) {
    const DatagramsSent result = end.socket.send_batch({&one, 1});
    CHECK(result.status == DatagramStatus::kRefused);
    LONGS_EQUAL(0, result.sent_count);
    return result.error_number;
  };
  const Bytes big(1473);
  OutgoingDatagram one;
  one.bytes = reinterpret_cast<const std::byte*>(big.data());
  one.byte_count = 1;
  LONGS_EQUAL(EDESTADDRREQ, refused(one));
  one.to = at("203.0.113.5:9");
  LONGS_EQUAL(ENETUNREACH, refused(one));
  one.to = at("192.0.2.9:0");
  LONGS_EQUAL(EINVAL, refused(one));
  one.to = at("192.0.2.255:9");
  LONGS_EQUAL(EACCES, refused(one));
  one.to = at("255.255.255.255:9");
  LONGS_EQUAL(EACCES, refused(one));
  one.to = at("[2001:db8::9]:9");
  LONGS_EQUAL(EAFNOSUPPORT, refused(one));
  one.to = at("127.0.0.1:9");
  LONGS_EQUAL(ENETUNREACH, refused(one));
  one.to = at("192.0.2.9:9");
  one.from = ip("192.0.2.7");
  LONGS_EQUAL(EADDRNOTAVAIL, refused(one));
  one.from = {};
  one.byte_count = 1473;
  LONGS_EQUAL(EMSGSIZE, refused(one));
  one.byte_count = 1472;
  LONGS_EQUAL(1, end.socket.send_batch({&one, 1}).sent_count);
}

TEST(PortDatagramSocket, OptionsThatMakeNoSenseAreRefused) {
  rig.start();
  DatagramOptions options = make().options("192.0.2.7:5004");
  LONGS_EQUAL(ErrorKind::kSystem, static_cast<ErrorKind>(refusal(options)));
  options = make().options("0.0.0.0:5004");
  options.owner.received = nullptr;
  LONGS_EQUAL(ErrorKind::kConfiguration, static_cast<ErrorKind>(refusal(options)));
  options = make().options("0.0.0.0:5004");
  options.peer = at("[2001:db8::9]:9");
  LONGS_EQUAL(ErrorKind::kConfiguration, static_cast<ErrorKind>(refusal(options)));
  options.peer = {};
  options.service_class = 64;
  LONGS_EQUAL(ErrorKind::kConfiguration, static_cast<ErrorKind>(refusal(options)));
  options.service_class = 0;
  options.multicast_interface = "eth0";
  LONGS_EQUAL(ErrorKind::kSystem, static_cast<ErrorKind>(refusal(options)));
  options.multicast_interface = "port0";
  options.joins_received = true;  // nothing joins, so the option is accepted
  CHECK(make().open(options).ok());
  LONGS_EQUAL(ErrorKind::kSystem, static_cast<ErrorKind>(refusal(options)));  // the port is in use
  // One that is not open has no address.
  for (const auto& end : ends) {
    end->socket.close();
    CHECK(!end->socket.local().is_there());
  }
}

TEST(PortDatagramSocket, PortsAreChosenAndSharedAsTheySay) {
  rig.start();
  End& a = open("0.0.0.0:0");
  End& b = open("0.0.0.0:0");
  CHECK(a.socket.local().port >= 49152 && a.socket.local().port != b.socket.local().port);
  open("192.0.2.1:5004");
  open("[::]:5004");
  LONGS_EQUAL(ErrorKind::kSystem, static_cast<ErrorKind>(refusal(make().options("0.0.0.0:5004"))));
  DatagramOptions shared = make().options("0.0.0.0:6000");
  shared.shares_port = true;
  shared.owner.context = &make();
  CHECK(ends.back()->open(shared).ok());
  End& first = *ends.back();
  shared.owner.context = &make();
  CHECK(ends.back()->open(shared).ok());
  End& second = *ends.back();
  for (uint16_t port = 1000; port < 1064; ++port) {
    const Bytes frame = udp_frame("192.0.2.9", port, "192.0.2.1", 6000, text("x"));
    const size_t before = first.all.size();
    rig.receive(frame);
    const bool was_first = first.all.size() > before;
    rig.receive(frame);
    CHECK((first.all.size() > before + 1) == was_first);  // a sender always reaches the same socket
  }
  CHECK(first.all.size() > 0 && second.all.size() > 0);
  LONGS_EQUAL(128, first.all.size() + second.all.size());
}

TEST(PortDatagramSocket, AConnectedOneHearsItsPeerAlone) {
  rig.start();
  DatagramOptions options = make().options("0.0.0.0:5004");
  options.peer = at("192.0.2.9:7000");
  End& connected = *ends.back();
  options.shares_port = true;
  CHECK(connected.open(options).ok());
  DatagramOptions others = make().options("0.0.0.0:5004");
  others.shares_port = true;
  End& any = *ends.back();
  CHECK(any.open(others).ok());
  rig.receive(udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, text("peer")));
  rig.receive(udp_frame("192.0.2.9", 7001, "192.0.2.1", 5004, text("other")));
  LONGS_EQUAL(1, connected.all.size());
  LONGS_EQUAL(1, any.all.size());
  rig.know("192.0.2.9");
  CHECK(connected.send("", "to the peer").sent_count == 1);
  LONGS_EQUAL(7000, number(rig.port.take_sent(), 36, 2));
}

TEST(PortDatagramSocket, CutsSegmentsAndGoesOnWhereItWasStopped) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  rig.know("192.0.2.9");
  Bytes bytes(2500);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7);
  rig.port.room = 2;
  OutgoingDatagram one;
  one.bytes = reinterpret_cast<const std::byte*>(bytes.data());
  one.byte_count = 2500;
  one.segment_bytes = 600;
  one.to = at("192.0.2.9:7000");
  DatagramsSent result = end.socket.send_batch({&one, 1});
  CHECK(result.status == DatagramStatus::kAgain);
  LONGS_EQUAL(0, result.sent_count);
  LONGS_EQUAL(1300, one.byte_count);
  LONGS_EQUAL(0, end.room_count);
  CHECK(rig.stack->next_deadline_ns() == 0);
  rig.advance();
  LONGS_EQUAL(0, end.room_count);
  rig.port.room = made_up::Port::kUnlimited;
  rig.advance();
  LONGS_EQUAL(1, end.room_count);
  rig.advance();
  LONGS_EQUAL(1, end.room_count);
  End& second = open("0.0.0.0:0");
  rig.port.room = 0;
  CHECK(second.send("192.0.2.9:7000", "x").status == DatagramStatus::kAgain);
  rig.port.room = made_up::Port::kUnlimited;
  rig.advance();
  LONGS_EQUAL(1, second.room_count);
  LONGS_EQUAL(1, end.room_count);  // the first socket no longer waits
  result = end.socket.send_batch({&one, 1});
  CHECK(result.status == DatagramStatus::kDone);
  LONGS_EQUAL(1, result.sent_count);
  Bytes got;
  LONGS_EQUAL(5, rig.port.sent.size());
  for (const Bytes& frame : rig.port.sent) got += part(frame, 42);
  CHECK(got == bytes);
}

TEST(PortDatagramSocket, WithoutBuffersItWaits) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  rig.know("192.0.2.9");
  rig.port.has_buffers = false;
  CHECK(end.send("192.0.2.9:7000", "x").status == DatagramStatus::kAgain);
  rig.port.has_buffers = true;
  rig.advance();
  LONGS_EQUAL(1, end.room_count);
}

TEST(PortDatagramSocket, TakenOnesAreNotSentTwiceWhenANeighbourIsAskedForBetween) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  rig.know("192.0.2.9");
  rig.port.room = 1;
  OutgoingDatagram some[3];
  const char* const to[] = {"192.0.2.9:1", "192.0.2.9:2", "192.0.2.10:3"};
  for (int i = 0; i < 3; ++i) {
    some[i].bytes = reinterpret_cast<const std::byte*>(&"abc"[i]);
    some[i].byte_count = 1;
    some[i].to = at(to[i]);
  }
  // The ARP request for .10 takes the only slot, so the datagrams before it are not sent.
  const DatagramsSent result = end.socket.send_batch(some);
  CHECK(result.status == DatagramStatus::kAgain);
  LONGS_EQUAL(0, result.sent_count);
  LONGS_EQUAL(0, rig.counters.sent_datagrams.read());
}

TEST(PortDatagramSocket, APortThatMakesChecksumsGetsPseudoSums) {
  rig.port.can = {.ipv4_checksum = true, .udp_checksum = true, .multi_segment = true};
  rig.start();
  End& end = open("0.0.0.0:5004");
  rig.know("192.0.2.9");
  rig.port.holds = true;
  CHECK(end.send("192.0.2.9:9", "abc").sent_count == 1);
  const rte_mbuf* frame = rig.port.held[0];
  const uint64_t wanted = RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_UDP_CKSUM;
  CHECK((frame->ol_flags & wanted) == wanted);
  LONGS_EQUAL(14, frame->l2_len);
  LONGS_EQUAL(20, frame->l3_len);
  const Bytes sent = rig.port.sent[0];
  LONGS_EQUAL(0, number(sent, 24, 2));
  const uint16_t half = static_cast<uint16_t>(~sum(pseudo("192.0.2.1", "192.0.2.9", 17, 11)));
  LONGS_EQUAL(half, number(sent, 40, 2));
  LONGS_EQUAL(0, rig.counters.summed_bytes.read());
}

TEST(PortDatagramSocket, WhatCameBeforeTheStartIsDeliveredThen) {
  rig.start();
  End& end = make();
  CHECK(end.socket.open(end.options("0.0.0.0:5004")).ok());
  rig.receive(udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, text("early")));
  LONGS_EQUAL(0, end.all.size());
  LONGS_EQUAL(0, end.socket.start());
  CHECK(rig.stack->next_deadline_ns() == 0);
  rig.advance();
  LONGS_EQUAL(1, end.all.size());
}

TEST(PortDatagramSocket, ALongOneIsTruncated) {
  rig.start();
  End& end = open("0.0.0.0:5004", {.buffer_count = 3, .buffer_bytes = 64});
  rig.receive(udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, Bytes(65, 1)));
  CHECK(end.all[0].datagram.is_truncated);
  LONGS_EQUAL(64, end.all[0].datagram.byte_count);
  LONGS_EQUAL(1, rig.counters.truncated_datagrams.read());
}

TEST(PortDatagramSocket, WhatIsSentToAnOwnAddressComesBack) {
  rig.start();
  End& a = open("0.0.0.0:5004");
  End& b = open("0.0.0.0:5005");
  CHECK(a.send("192.0.2.1:5005", "to myself").sent_count == 1);
  LONGS_EQUAL(0, b.all.size());  // never from within send_batch()
  rig.advance();
  LONGS_EQUAL(1, b.all.size());
  STRCMP_EQUAL("192.0.2.1:5004", b.all[0].datagram.from.text().c_str());
  LONGS_EQUAL(0, rig.port.sent.size());
  LONGS_EQUAL(0, rig.dropped());
}

TEST(PortDatagramSocket, GroupsAreHeardByThoseThatJoined) {
  rig.start();
  End& any = make();
  DatagramOptions options = any.options("0.0.0.0:5004");
  options.shares_port = true;
  CHECK(any.open(options).ok());
  End& one_source = make();
  options = one_source.options("239.1.1.1:5004");
  options.shares_port = true;
  CHECK(one_source.open(options).ok());
  CHECK(any.socket.join(ip("239.1.1.1"), {}, nullptr).ok());
  CHECK(one_source.socket.join(ip("239.1.1.1"), ip("192.0.2.8"), "port0").ok());
  const auto frame_of = [](const char* from, const char* group) {
    const Bytes packet = ipv4(from, group, udp(from, 7, group, 5004, text("stream")));
    return ethernet({1, 0, 0x5e, 1, 1, 1}, mac(kPeer), 0x0800, packet);
  };
  rig.receive(frame_of("192.0.2.8", "239.1.1.1"));
  LONGS_EQUAL(1, any.all.size());
  LONGS_EQUAL(1, one_source.all.size());
  STRCMP_EQUAL("239.1.1.1:0", (DatagramAddress{any.all[0].datagram.to, 0, 0}).text().c_str());
  rig.receive(frame_of("192.0.2.9", "239.1.1.1"));
  LONGS_EQUAL(2, any.all.size());
  LONGS_EQUAL(1, one_source.all.size());
  rig.receive(frame_of("192.0.2.9", "239.129.1.1"));  // another group with the same MAC
  LONGS_EQUAL(1, rig.dropped(PacketDrop::kIpDestination));
  CHECK(any.socket.leave(ip("239.1.1.1"), {}, nullptr).ok());
  rig.receive(frame_of("192.0.2.9", "239.1.1.1"));
  LONGS_EQUAL(2, any.all.size());
  LONGS_EQUAL(2, rig.dropped(PacketDrop::kIpDestination));
  one_source.socket.close();
  rig.receive(frame_of("192.0.2.8", "239.1.1.1"));  // no socket is in the group
  LONGS_EQUAL(3, rig.dropped(PacketDrop::kIpDestination));
}

TEST(PortDatagramSocket, JoinsThatMakeNoSenseAreRefused) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  const auto answer = [&](Result<void> outcome) {
    CHECK(!outcome.ok() && outcome.error().cure[0] != 0);
    return std::string(outcome.error().answer);
  };
  CHECK(answer(end.socket.join(ip("192.0.2.9"), {}, nullptr)) == std::strerror(EINVAL));
  CHECK(answer(end.socket.join(ip("ff02::1"), {}, nullptr)) == std::strerror(EINVAL));
  CHECK(answer(end.socket.join(ip("239.1.1.1"), {}, "eth0")) == std::strerror(ENODEV));
  CHECK(answer(end.socket.leave(ip("239.1.1.1"), {}, nullptr)) == std::strerror(EADDRNOTAVAIL));
  CHECK(end.socket.join(ip("239.1.1.1"), {}, nullptr).ok());
  CHECK(answer(end.socket.join(ip("239.1.1.1"), {}, nullptr)) == std::strerror(EADDRINUSE));
}

TEST(PortDatagramSocket, OwnMulticastIsHeardUnlessItIsNotWanted) {
  rig.start();
  End& hears = open("0.0.0.0:5004");
  CHECK(hears.socket.join(ip("239.1.1.1"), {}, nullptr).ok());
  rig.advance();
  rig.port.sent.clear();
  End& sends = open("0.0.0.0:0");
  CHECK(sends.send("239.1.1.1:5004", "echo").sent_count == 1);
  rig.advance();
  LONGS_EQUAL(1, hears.all.size());
  const Bytes frame = rig.port.take_sent();
  CHECK(part(frame, 0, 6) == (Bytes{1, 0, 0x5e, 1, 1, 1}));
  LONGS_EQUAL(1, frame[22]);  // hops
  DatagramOptions options = make().options("0.0.0.0:0");
  options.hears_own_multicast = false;
  options.multicast_hops = 9;
  CHECK(ends.back()->open(options).ok());
  CHECK(ends.back()->send("239.1.1.1:5004", "silent").sent_count == 1);
  rig.advance();
  LONGS_EQUAL(1, hears.all.size());
  LONGS_EQUAL(9, rig.port.take_sent()[22]);
  options = make().options("0.0.0.0:0");
  options.multicast_hops = 0;
  CHECK(ends.back()->open(options).ok());
  CHECK(ends.back()->send("239.1.1.1:5004", "stays").sent_count == 1);
  rig.advance();
  LONGS_EQUAL(2, hears.all.size());
  LONGS_EQUAL(0, rig.port.sent.size());
}

TEST(PortDatagramSocket, BroadcastsAreReceived) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  for (const char* to : {"192.0.2.255", "255.255.255.255"}) {
    rig.receive(ethernet(broadcast(), mac(kPeer), 0x0800,
                         ipv4("192.0.2.9", to, udp("192.0.2.9", 1, to, 5004, text("all")))));
  }
  LONGS_EQUAL(2, end.all.size());
}

TEST(PortDatagramSocket, ThoseThatAreCalledMayCloseEachOther) {
  static End* victim;
  rig.start();
  End& first = open("0.0.0.0:5004");
  End& second = open("0.0.0.0:5005");
  victim = &second;
  first.meanwhile = [](End&) { victim->socket.close(); };
  rte_mbuf* frames_[2] = {
      rig.port.frame(udp_frame("192.0.2.9", 1, "192.0.2.1", 5005, text("never"))),
      rig.port.frame(udp_frame("192.0.2.9", 1, "192.0.2.1", 5004, text("closes")))};
  rig.stack->receive(frames_, rig.time());
  LONGS_EQUAL(1, first.all.size());
  LONGS_EQUAL(0, second.all.size());
  CHECK(rig.port.pool.is_whole());
}
