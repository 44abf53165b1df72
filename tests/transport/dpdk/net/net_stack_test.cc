// Several shards of one port, deadlines, and the data path's law.
#include "transport/dpdk/net/net_stack.h"

#include <cerrno>

#include "tests/support/datapath_law.h"
#include "tests/transport/dpdk/net/net_rig.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using namespace bedplate::frames;
using made_up::End;
using made_up::Rig;

TEST_GROUP(NetStack) {
  std::unique_ptr<PortShared> shared;
  Rig rigs[2];
  std::unique_ptr<End> end, other;
  uint32_t woken[2] = {0, 0};

  void teardown() override {
    end.reset();
    other.reset();
    for (Rig& rig : rigs) rig.stack.reset();
    shared.reset();
    CHECK(rigs[0].port.pool.is_whole() && rigs[1].port.pool.is_whole());
  }
  void make_two(uint32_t ring_frame_count = 64) {
    PortShared::Options options;
    options.queue_count = 2;
    options.ring_frame_count = ring_frame_count;
    options.wake = [](void* self, uint32_t queue) noexcept {
      ++static_cast<uint32_t*>(self)[queue];
    };
    options.context = woken;
    shared = std::make_unique<PortShared>(options);
    for (uint32_t i = 0; i < 2; ++i) {
      rigs[i].options.shared = shared.get();
      rigs[i].options.queue_index = i;
      rigs[i].port.other = &rigs[1 - i].port;
      rigs[i].start();
    }
    // Exchange and forget the announcements of the start.
    for (Rig& rig : rigs) rig.advance();
    for (Rig& rig : rigs) rig.port.sent.clear();
    end = std::make_unique<End>(*rigs[0].stack);
    other = std::make_unique<End>(*rigs[1].stack);
  }
  void both_advance() {
    for (Rig& rig : rigs) rig.advance();
  }
};

TEST(NetStack, OptionsThatMakeNoSenseAreRefused) {
  const auto wrong = [](void (*change)(NetOptions&)) {
    NetOptions options = made_up::usual_options();
    POINTERS_EQUAL(nullptr, NetStack::check(options));
    change(options);
    return NetStack::check(options) != nullptr;
  };
  CHECK(wrong([](NetOptions& o) { o.addresses[0] = made_up::prefix("239.1.1.1/24"); }));
  CHECK(wrong([](NetOptions& o) { o.addresses[0] = made_up::prefix("127.0.0.1/8"); }));
  CHECK(wrong([](NetOptions& o) { o.addresses[0] = o.addresses[1]; }));
  CHECK(wrong([](NetOptions& o) { o.addresses[0].prefix_bits = 33; }));
  CHECK(wrong([](NetOptions& o) { o.addresses[0] = {}; }));
  CHECK(wrong([](NetOptions& o) { o.gateway4 = ip("10.0.0.1"); }));
  CHECK(wrong([](NetOptions& o) { o.gateway4 = ip("2001:db8::fe"); }));
  CHECK(wrong([](NetOptions& o) { o.vlan = 4095; }));
  CHECK(wrong([](NetOptions& o) { o.socket_count_max = 0; }));
  CHECK(wrong([](NetOptions& o) { o.membership_count_max = 31; }));
  CHECK(wrong([](NetOptions& o) { o.neighbour_count_max = 4097; }));
  CHECK(!wrong([](NetOptions& o) { o.gateway6 = ip("fe80::fe"); }));
}

TEST(NetStack, LinkLocalStationsAreOnTheLinkWhateverPrefixItsOwnAddressHas) {
  rigs[0].options.addresses[1] = made_up::prefix("fe80::ff:fe00:1/128");
  rigs[0].options.gateway6 = {};
  const NetStack& stack = rigs[0].make();
  CHECK(is_same(stack.link_local(), ip("fe80::ff:fe00:1")));
  CHECK(is_same(stack.routes().next_hop(ip("fe80::9")), ip("fe80::9")));
  LONGS_EQUAL(2, stack.routes().address_count());
}

TEST(NetStack, ADatagramReachesTheShardThatHasItsSocket) {
  make_two();
  CHECK(other->open("0.0.0.0:5004").ok());
  other->keeps = true;
  rigs[0].receive(udp_frame("192.0.2.9", 7, "192.0.2.1", 5004, text("here")));
  LONGS_EQUAL(1, woken[1]);
  CHECK(rigs[1].stack->next_deadline_ns() == 0);
  rigs[1].advance();
  LONGS_EQUAL(1, other->all.size());
  LONGS_EQUAL(0, rigs[0].dropped());
  LONGS_EQUAL(0, rigs[0].port.sent.size());             // it is not refused
  other->socket.release(other->all[0].datagram.bytes);  // a buffer of the other shard's pool
  other->socket.close();
  rigs[0].receive(udp_frame("192.0.2.9", 7, "192.0.2.1", 5004, text("nobody")));
  LONGS_EQUAL(1, rigs[0].dropped(PacketDrop::kNoSocket));
  // A datagram for another UDP port with the same bit is handed over, and dropped there.
  CHECK(other->open("0.0.0.0:5004").ok());
  rigs[0].receive(udp_frame("192.0.2.9", 7, "192.0.2.1", 5004 + 4096, text("nobody")));
  rigs[1].advance();
  LONGS_EQUAL(1, rigs[1].dropped(PacketDrop::kNoSocket));
}

TEST(NetStack, MulticastReachesAllShardsThatJoined) {
  make_two();
  for (End* one : {end.get(), other.get()}) {
    CHECK(one->open("0.0.0.0:5004").ok());
    CHECK(one->socket.join(ip("239.1.1.1"), {}, nullptr).ok());
    one->keeps = true;
  }
  rigs[0].receive(ethernet(
      {1, 0, 0x5e, 1, 1, 1}, mac(kPeer), 0x0800,
      ipv4("192.0.2.9", "239.1.1.1", udp("192.0.2.9", 7, "239.1.1.1", 5004, text("stream")))));
  rigs[1].advance();
  LONGS_EQUAL(1, end->all.size());
  LONGS_EQUAL(1, other->all.size());
  POINTERS_EQUAL(end->all[0].datagram.bytes, other->all[0].datagram.bytes);  // no copy
  end->socket.release(end->all[0].datagram.bytes);
  other->socket.release(other->all[0].datagram.bytes);
  // A datagram that one of the two sends reaches both as well.
  rigs[0].port.sent.clear();
  CHECK(end->send("239.1.1.1:5004", "own").sent_count == 1);
  both_advance();
  LONGS_EQUAL(2, end->all.size());
  LONGS_EQUAL(2, other->all.size());
  end->socket.release(end->all[1].datagram.bytes);
  other->socket.release(other->all[1].datagram.bytes);
}

TEST(NetStack, EachShardLearnsAndOneAnswers) {
  make_two();
  CHECK(other->open("0.0.0.0:5004").ok());
  CHECK(other->send("192.0.2.9:7", "waits").sent_count == 1);
  rigs[1].port.sent.clear();
  rigs[0].receive(to_us(0x0806, arp(2, mac(kPeer), "192.0.2.9", "192.0.2.1", mac(kOwn))));
  rigs[1].advance();
  CHECK(part(rigs[1].port.take_sent(), 42) == text("waits"));
  rigs[0].receive(
      ethernet(broadcast(), mac(kPeer), 0x0806, arp(1, mac(kPeer), "192.0.2.9", "192.0.2.1")));
  both_advance();
  LONGS_EQUAL(1, rigs[0].port.sent.size());
  LONGS_EQUAL(0, rigs[1].port.sent.size());
  // An error arrives at the shard that did not send the datagram.
  rigs[0].receive(
      icmp4_frame("192.0.2.9", "192.0.2.1",
                  Bytes{3, 3, 0, 0, 0, 0, 0, 0} +
                      ipv4("192.0.2.1", "192.0.2.9", udp("192.0.2.1", 5004, "192.0.2.9", 7, {}))));
  rigs[1].advance();
  LONGS_EQUAL(1, other->failures.size());
  LONGS_EQUAL(ECONNREFUSED, other->failures[0].first);
  LONGS_EQUAL(0, rigs[0].dropped() + rigs[1].dropped());
}

TEST(NetStack, AFullRingDropsAndTheRestGoesOn) {
  make_two(4);
  CHECK(other->open("0.0.0.0:5004").ok());
  for (int i = 0; i < 5; ++i) {
    rigs[0].receive(udp_frame("192.0.2.9", 7, "192.0.2.1", 5004, text("x")));
  }
  LONGS_EQUAL(2, rigs[0].dropped(PacketDrop::kQueueFull));  // a ring of 4 holds 3
  rigs[1].advance();
  LONGS_EQUAL(3, other->all.size());
}

TEST(NetStack, AClockThatJumpsIsNoHarm) {
  make_two();
  CHECK(end->open("0.0.0.0:5004").ok());
  CHECK(end->send("192.0.2.9:7", "waits").sent_count == 1);
  rigs[0].advance(1'000'000'000'000'000);
  for (int i = 0; i < 4; ++i) rigs[0].advance(1'000'000'000'000'000);
  LONGS_EQUAL(1, end->failures.size());
  CHECK(rigs[0].stack->next_deadline_ns() == Neighbours::kNever);
}

TEST(NetStack, WhatItDoesForTrafficKeepsTheLaw) {
  BP_SKIP_WITHOUT_LAW();
  make_two();
  Rig& rig = rigs[0];
  rig.know("192.0.2.9");
  rig.port.records = false;
  // An owner that stores nothing.
  static PortDatagramSocket* socket;
  PortDatagramSocket own(rig.stack->socket_parts(), {});
  socket = &own;
  DatagramOptions options;
  options.local = made_up::at("0.0.0.0:5004");
  options.owner.received = [](void*, std::span<ReceivedDatagram> some) noexcept {
    OutgoingDatagram out[2];
    for (ReceivedDatagram& one : some) {
      one.is_kept = true;
      for (OutgoingDatagram& copy : out) {
        copy.bytes = one.bytes;
        copy.byte_count = one.byte_count;
        copy.to = one.from;
      }
      socket->send_batch(out);
    }
  };
  CHECK(own.open(options).ok());
  CHECK(own.join(ip("239.1.1.1"), {}, nullptr).ok());
  own.start();
  rte_mbuf* burst[] = {
      rig.port.frame(udp_frame("192.0.2.9", 7, "192.0.2.1", 5004, text("echo"))),
      rig.port.frame(to_us(0x0806, arp(1, mac(kPeer), "192.0.2.9", "192.0.2.1"))),
      rig.port.frame(icmp4_frame("192.0.2.9", "192.0.2.1", {8, 0, 0, 0, 0, 0, 0, 0})),
      rig.port.frame(
          icmp6_frame("2001:db8::9", "2001:db8::1", solicitation("2001:db8::1", mac(kPeer)))),
      rig.port.frame(udp_frame("192.0.2.9", 7, "192.0.2.1", 5005, text("refused"))),
      rig.port.frame(udp_frame("192.0.2.9", 7, "192.0.2.7", 5005, text("dropped")))};
  const uint64_t before = rig.port.sent_count;
  const auto keep = [&] {
    rig.stack->receive(burst, rig.time());
    rig.now_ns += 2'000'000'000;
    rig.stack->advance(rig.time());
    socket->release(socket->is_open() ? rte_pktmbuf_mtod(burst[0], std::byte*) : nullptr);
  };
  LONGS_EQUAL(0, test::breaches_in(keep));
  CHECK(rig.port.sent_count >= before + 6);
  own.close();
}
