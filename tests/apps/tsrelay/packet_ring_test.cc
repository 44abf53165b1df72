// The ring of packets and its taps: each buffer goes back to its socket once. Each tap takes
// packets at its own pace, and the slowest tap loses the oldest packets.
#include "apps/tsrelay/packet_ring_datapath.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/apps/tsrelay/relay_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

struct Tap final : RingTap {
  PacketRing* ring = nullptr;
  uint64_t most = ~uint64_t{0};  // how many more it takes
  std::vector<uint32_t> taken;
  std::vector<uint32_t> missing;
  bool is_busy = false;

  uint32_t pump(uint64_t) noexcept override {
    uint32_t count = 0;
    for (; next_ < ring->ready_end() && most > 0; ++next_, --most, ++count) {
      taken.push_back(ring->at(next_).byte_count);
    }
    return count;
  }
  void missed(const Packet& packet) noexcept override { missing.push_back(packet.byte_count); }
  bool is_idle() const noexcept override { return !is_busy; }
};

}  // namespace

TEST_GROUP(PacketRing) {
  std::vector<Packet> packets{16};
  std::vector<uint32_t> indices = std::vector<uint32_t>(8);
  PacketTable table;
  PacketRing ring;
  Tap fast;
  Tap slow;
  FakeSocket socket{16};

  void setup() override {
    table.create(packets, nullptr);
    ring.create(table, indices, 2);
    for (Tap* tap : {&fast, &slow}) {
      tap->ring = &ring;
      ring.add_tap(*tap);
    }
  }
  // Pushes a packet in a buffer of the socket; its length is its number.
  void push(uint32_t number, uint64_t due_ns = 0) {
    const uint32_t index = table.take();
    table[index].bytes = socket.memory.data() + number % 16 * FakeSocket::kBufferBytes;
    table[index].byte_count = number;
    table[index].socket = &socket;
    table[index].due_ns = due_ns;
    socket.is_kept[number % 16] = true;
    ring.push(index, 100);
    CHECK(ring.is_valid());
    CHECK(table.is_valid());
  }
};

TEST(PacketRing, APacketStaysUntilAllHaveHadIt) {
  slow.most = 1;
  for (uint32_t i = 1; i <= 3; ++i) push(i);
  LONGS_EQUAL(4, ring.pump(100));
  LONGS_EQUAL(2, socket.kept_count());
  CHECK(!ring.is_drained());
  slow.most = 2;
  LONGS_EQUAL(2, ring.pump(100));
  LONGS_EQUAL(0, socket.kept_count());
  LONGS_EQUAL(0, table.used_count());
  LONGS_EQUAL(0, ring.held_count());
  LONGS_EQUAL(3, ring.held_peak());
  CHECK(ring.is_drained());
  slow.is_busy = true;
  CHECK(!ring.is_drained());
}

TEST(PacketRing, TheSlowLoseTheOldest) {
  slow.most = 0;
  for (uint32_t i = 1; i <= 11; ++i) {
    push(i);
    ring.pump(100);
  }
  LONGS_EQUAL(11, fast.taken.size());
  LONGS_EQUAL(0, fast.missing.size());
  CHECK((slow.missing == std::vector<uint32_t>{1, 2, 3}));
  LONGS_EQUAL(8, socket.kept_count());
  slow.most = 100;
  ring.pump(100);
  CHECK((slow.taken == std::vector<uint32_t>{4, 5, 6, 7, 8, 9, 10, 11}));
  LONGS_EQUAL(0, socket.kept_count());
}

TEST(PacketRing, WhatIsNotDueWaits) {
  push(1, 50);
  push(2, 200);
  push(3, 150);  // behind a packet that is due later
  ring.pump(100);
  CHECK((fast.taken == std::vector<uint32_t>{1}));
  LONGLONGS_EQUAL(200, ring.due_ns());
  ring.pump(199);
  LONGS_EQUAL(1, fast.taken.size());
  ring.pump(200);
  LONGS_EQUAL(3, fast.taken.size());
  CHECK(ring.due_ns() == ~uint64_t{0});
  push(4, 1000);
  ring.hurry();
  ring.pump(200);
  LONGS_EQUAL(4, fast.taken.size());
}

TEST(PacketRing, AFullRingHurriesBeforeItDrops) {
  for (uint32_t i = 1; i <= 10; ++i) push(i, 1000);
  CHECK((fast.taken == std::vector<uint32_t>{1, 2}));
  LONGS_EQUAL(0, fast.missing.size() + slow.missing.size());
}

// The stations of a packet are recorded once all outputs have taken it. If an output has missed it,
// the last station is left out.
TEST(PacketRing, ThePacketsStationsAreToldWhenItGoes) {
  TraceRecord records[8];
  TraceRing traces;
  traces.create(records);
  PacketRing traced;
  traced.create(table, indices, 1, {TraceWriter(&traces, 2), 5});
  Tap tap;
  tap.ring = &traced;
  traced.add_tap(tap);
  const auto push_to = [&](uint32_t number, uint64_t due_ns, PacketKind kind) {
    const uint32_t index = table.take();
    table[index].bytes = socket.memory.data() + number % 16 * FakeSocket::kBufferBytes;
    socket.is_kept[number % 16] = true;
    table[index].byte_count = number;
    table[index].rtp.sequence = static_cast<uint16_t>(number);
    table[index].socket = &socket;
    table[index].arrived_ns = 64;
    table[index].due_ns = due_ns;
    table[index].kind = kind;
    traced.push(index, 128);
  };
  tap.most = 0;
  push_to(7, 192, PacketKind::kMedia);
  push_to(8, 0, PacketKind::kColumn);
  push_to(9, 0, PacketKind::kMedia);
  traced.pump(256);
  CHECK_EQUAL(0, records[0].number);
  tap.most = 3;
  traced.pump(640);
  CHECK_EQUAL(7, records[0].handle);
  CHECK_EQUAL(7, records[0].bytes);
  LONGS_EQUAL(5, records[0].subject);
  LONGS_EQUAL(0, records[0].kind);
  CHECK_EQUAL(64, records[0].begin_ns);
  CHECK_EQUAL(1, records[0].passed[kOrdered - 1]);
  CHECK_EQUAL(2, records[0].passed[kDue - 1]);
  CHECK_EQUAL(9, records[0].passed[kTaken - 1]);
  CHECK_EQUAL(9, records[1].handle);
  CHECK_EQUAL(kTraceNotPassed, records[1].passed[kDue - 1]);
  tap.most = 0;
  for (uint32_t i = 0; i < 9; ++i) push_to(20 + i, 0, PacketKind::kMedia);
  CHECK_EQUAL(20, records[2].handle);
  CHECK_EQUAL(kTraceNotPassed, records[2].passed[kTaken - 1]);
  CHECK_EQUAL(0, records[3].number);
}

TEST(PacketRing, AHeldPacketOutlivesTheRing) {
  push(1);
  const uint32_t index = ring.index_at(0);
  table.hold(index);
  ring.pump(100);
  LONGS_EQUAL(1, socket.kept_count());
  table.let_go(index);
  LONGS_EQUAL(0, socket.kept_count());
}
