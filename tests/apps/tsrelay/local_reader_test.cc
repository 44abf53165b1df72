// A local process reads a stream by loans of its packets. The messenger of the test plays the
// process: it holds loans or gives them back.
#include "apps/tsrelay/local_reader_datapath.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/apps/tsrelay/relay_rig.h"
#include "transport/self/self_provider.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

constexpr AmId kPacket = 1;
constexpr AmId kOther = 2;
constexpr uint32_t kPacketCount = 128;

}  // namespace

TEST_GROUP(LocalReader) {
  std::vector<Packet> packets{kPacketCount};
  std::vector<uint32_t> indices = std::vector<uint32_t>(32);
  PacketTable table;
  PacketRing ring;
  FakeSocket socket{kPacketCount};
  ReaderCounters counters;
  Messenger messenger;
  SelfProvider provider{0, messenger.dispatcher()};
  Endpoint* self = nullptr;
  LocalReader reader;
  struct Got {
    std::vector<Loan> loans;        // that the process has
    std::vector<uint64_t> numbers;  // of all packets that came
  } got;
  std::vector<Loan>& loans = got.loans;
  std::vector<uint64_t>& numbers = got.numbers;
  uint32_t pushed = 0;

  void setup() override {
    table.create(packets, nullptr);
    ring.create(table, indices, 1);
    messenger.add_provider(provider);
    const auto keep = [](void* its, const Message& message) noexcept {
      Got& its_own = *static_cast<Got*>(its);
      its_own.loans.push_back(message.loan);
      uint64_t number = 0;
      std::memcpy(&number, message.payload.data(), sizeof number);
      its_own.numbers.push_back(number);
    };
    loans.reserve(kPacketCount);
    numbers.reserve(2 * kPacketCount);
    messenger.set_handler(kPacket, {keep, &got});
    messenger.set_handler(kOther, {[](void*, const Message&) noexcept {}, nullptr});
    self = messenger.connect({0}).value();
    reader.create(ring, &messenger, counters);
  }
  void teardown() override {
    reader.end();
    give_back();
    CHECK_EQUAL(0, reader.lent_count());
    CHECK(reader.is_free());
    CHECK(reader.is_valid());
  }
  void push(PacketKind kind = PacketKind::kMedia) {
    const uint32_t index = table.take();
    table[index].kind = kind;
    table[index].bytes = socket.memory.data() + pushed % kPacketCount * FakeSocket::kBufferBytes;
    table[index].byte_count = 120;  // a header, the transport stream, and padding
    table[index].rtp.header_bytes = kRtpHeaderBytes;
    table[index].payload_bytes = 100;
    table[index].socket = &socket;
    socket.is_kept[pushed++ % kPacketCount] = true;
    ring.push(index, 0);
    ring.pump(0);
    CHECK(reader.is_valid());
  }
  void poll() {
    while (messenger.poll(64) > 0) CHECK(reader.is_valid());
  }
  void give_back() {
    poll();
    for (const Loan& loan : loans) messenger.release(loan);
    loans.clear();
    poll();
    CHECK(reader.is_valid());
  }
  void fill_queue() {
    while (self->am_send(kOther, {}) == SendStatus::kDone) {
    }
    CHECK_FALSE(self->has_room());
  }
};

TEST(LocalReader, APacketIsLentUntilItComesBack) {
  push();  // the reader has not begun
  reader.begin(*self, kPacket);
  push();
  push();
  poll();
  LONGS_EQUAL(2, loans.size());
  LONGS_EQUAL(2, reader.lent_count());
  CHECK_EQUAL(2, counters.packets.read());
  CHECK_EQUAL(2, counters.lent.read());
  LONGS_EQUAL(2, table.used_count());
  give_back();
  LONGS_EQUAL(0, table.used_count());
  CHECK_EQUAL(0, counters.lent.read());
}

TEST(LocalReader, PaddingIsNotLent) {
  reader.begin(*self, kPacket);
  push();
  poll();
  LONGS_EQUAL(kRtpHeaderBytes + 100, loans.at(0).memory.size());
}

// Only packets of the transport stream have numbers, so other packets leave no gap.
TEST(LocalReader, NumbersAreOfPacketsOfTheStream) {
  reader.begin(*self, kPacket);
  for (uint32_t i = 0; i < 12; ++i) push(i % 3 == 1 ? PacketKind::kEmpty : PacketKind::kMedia);
  poll();
  LONGS_EQUAL(8, numbers.size());
  for (uint64_t i = 0; i < 8; ++i) LONGS_EQUAL(i, numbers[i]);
  // Packets that the reader missed leave a gap in the numbers.
  const uint32_t lent_max = LocalReader::kLoansMax;
  for (uint32_t i = 0; i < lent_max - 8 + indices.size() + 3; ++i) {
    push();
    poll();
  }
  CHECK_EQUAL(3, counters.dropped.read());
  give_back();
  ring.pump(0);
  poll();
  LONGS_EQUAL(lent_max + 3, numbers[lent_max]);
}

TEST(LocalReader, OneThatKeepsAllLosesTheOldest) {
  reader.begin(*self, kPacket);
  const uint32_t lent_max = LocalReader::kLoansMax;
  for (uint32_t i = 0; i < lent_max + indices.size(); ++i) {
    push();
    poll();
  }
  LONGS_EQUAL(lent_max, loans.size());
  CHECK_EQUAL(0, counters.dropped.read());
  push();
  CHECK_EQUAL(1, counters.dropped.read());
  give_back();
  ring.pump(0);
  poll();
  CHECK_EQUAL(2 * lent_max, counters.packets.read());
}

// A reader that ends while it waits for space must get no notice of space later.
TEST(LocalReader, OneThatGoesWhileItWaitsForRoomWaitsNoMore) {
  reader.begin(*self, kPacket);
  fill_queue();
  push();
  LONGS_EQUAL(0, reader.lent_count());
  reader.end();
  CHECK(reader.is_valid());
  reader.begin(*self, kPacket);
  poll();
  push();
  poll();
  LONGS_EQUAL(1, loans.size());
}

TEST(LocalReader, WhatWaitsForRoomIsLentWhenThereIsSome) {
  reader.begin(*self, kPacket);
  fill_queue();
  push();
  LONGS_EQUAL(0, reader.lent_count());
  poll();
  ring.pump(0);
  poll();
  LONGS_EQUAL(1, loans.size());
}
