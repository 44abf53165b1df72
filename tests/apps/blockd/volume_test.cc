// VolumeService alone, fed through its lanes: grants, commits, and zeroing in slices.
#include "apps/blockd/volume_datapath.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <poll.h>

#include "apps/blockd/volume.h"
#include "platform/units.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint64_t kVolumeBytes = 8 * kMiB;
constexpr uint64_t kLaneItems = 256;

struct alignas(kCacheLineBytes) LaneMemory {
  std::byte bytes[BlockRequestFifo::bytes_for(kLaneItems)];
};

// Allocated apart from the test group, because CppUTest's operator new ignores alignment.
struct Parts {
  LaneMemory request_lane;
  LaneMemory reply_lane;
  Doorbell doorbell;
  VolumeCounters counters;
};

}  // namespace

TEST_GROUP(VolumeService) {
  std::unique_ptr<Parts> parts = std::make_unique<Parts>();
  std::vector<std::byte> memory = std::vector<std::byte>(kVolumeBytes, std::byte{0xee});
  Volume volume;
  BlockRequestFifo* requests = nullptr;
  BlockRequestFifo* replies = nullptr;
  EventLoop loop;       // tells the time
  VolumeLanes ends[1];  // of the service
  VolumeService service;

  void setup() override {
    volume.store = std::make_unique<MemoryStore>(memory.data(), kVolumeBytes);
    volume.counters = &parts->counters;
    requests = BlockRequestFifo::create(parts->request_lane.bytes, kLaneItems);
    replies = BlockRequestFifo::create(parts->reply_lane.bytes, kLaneItems);
    CHECK(parts->doorbell.create().ok());
    ends[0] = {requests, {replies, &parts->doorbell}};
    service.create(ends, loop);
  }

  BlockRequest request(nbd::Command command, uint64_t offset, uint32_t length) {
    BlockRequest made;
    made.wire = {command, 0, length, 1, offset};
    made.volume = &volume;
    return made;
  }
  void push(BlockRequest & each) { CHECK(requests->try_push(&each)); }

  // Returns the next reply; nullptr: none.
  BlockRequest* reply() {
    BlockRequest* one[1] = {};
    return replies->pop_batch(one) == 1 ? one[0] : nullptr;
  }
  BlockRequest* answer_to(BlockRequest & each) {
    push(each);
    service.poll(64);
    return reply();
  }
  bool is_filled(uint64_t from, uint64_t bytes, uint8_t with) {
    return std::all_of(&memory[from], &memory[from] + bytes,
                       [&](std::byte each) { return each == std::byte{with}; });
  }
  bool is_rung() {
    pollfd event = {parts->doorbell.event_fd(), POLLIN, 0};
    return ::poll(&event, 1, 0) == 1;
  }
};

TEST(VolumeService, AnswersAReadWithWhereItsBytesLie) {
  BlockRequest read = request(nbd::Command::kRead, 12'345, 4096);
  POINTERS_EQUAL(&read, answer_to(read));
  POINTERS_EQUAL(&memory[12'345], read.data);
  POINTERS_EQUAL(nullptr, reply());
}

TEST(VolumeService, GrantsAWriteItsDestinationAndCountsWhatBecameOfIt) {
  BlockRequest write = request(nbd::Command::kWrite, 4096, 512);
  POINTERS_EQUAL(&write, answer_to(write));
  POINTERS_EQUAL(&memory[4096], write.data);
  CHECK_EQUAL(1, parts->counters.grants.read());
  write.step = RequestStep::kCommit;
  POINTERS_EQUAL(&write, answer_to(write));
  CHECK_EQUAL(1, parts->counters.commits.read());
  write.step = RequestStep::kSubmit;
  POINTERS_EQUAL(&write, answer_to(write));
  write.step = RequestStep::kAbort;
  POINTERS_EQUAL(&write, answer_to(write));
  CHECK_EQUAL(2, parts->counters.grants.read());
  CHECK_EQUAL(1, parts->counters.commits.read());
  CHECK_EQUAL(1, parts->counters.aborts.read());
  CHECK(is_filled(0, kVolumeBytes, 0xee));  // VolumeService touches no payload
}

// Copies of whole lines bypass the caches, other copies do not. Both change exactly their range,
// and the payload may have any alignment.
TEST(VolumeService, CopiesAPayloadThatHasArrivedWithItsHeader) {
  const std::vector<std::byte> payload(1024 + 1, std::byte{0x11});
  constexpr uint64_t kLookedAtBytes = 16 * kKiB;
  const uint64_t line = -reinterpret_cast<uintptr_t>(memory.data()) % kCacheLineBytes + 4096;
  uint64_t written = 0;
  for (const uint64_t offset : {line, line + 1, line + 16}) {
    for (const uint32_t bytes : {1U, 64U, 512U, 513U, 1024U}) {
      for (const size_t from : {0, 1}) {
        std::fill_n(memory.begin(), kLookedAtBytes, std::byte{0xee});
        BlockRequest write = request(nbd::Command::kWrite, offset, bytes);
        write.step = RequestStep::kStore;
        write.data = const_cast<std::byte*>(payload.data() + from);
        POINTERS_EQUAL(&write, answer_to(write));
        CHECK(is_filled(offset, bytes, 0x11));
        CHECK(is_filled(0, offset, 0xee));
        CHECK(is_filled(offset + bytes, kLookedAtBytes - offset - bytes, 0xee));
        ++written;
        CHECK_EQUAL(written, parts->counters.commits.read());
      }
    }
  }
  CHECK_EQUAL(0, parts->counters.grants.read());
}

TEST(VolumeService, APayloadThatCameWhileItsVolumeWasHeldIsCopiedWhenItGoesOn) {
  std::vector<std::byte> payload(512, std::byte{0x11});
  BlockRequest write = request(nbd::Command::kWrite, 4096, 512);
  write.step = RequestStep::kStore;
  write.data = payload.data();
  CHECK_EQUAL(0, service.hold(volume, true));
  POINTERS_EQUAL(nullptr, answer_to(write));
  CHECK(is_filled(4096, 512, 0xee));
  CHECK_EQUAL(1, service.hold(volume, false));
  POINTERS_EQUAL(&write, reply());
  CHECK(is_filled(4096, 512, 0x11));
}

TEST(VolumeService, AFlushComesBackAtOnce) {
  BlockRequest flush = request(nbd::Command::kFlush, 0, 0);
  POINTERS_EQUAL(&flush, answer_to(flush));
}

TEST(VolumeService, TrimAndWriteZeroesZeroExactlyTheirRange) {
  for (const auto command : {nbd::Command::kTrim, nbd::Command::kWriteZeroes}) {
    std::fill(memory.begin(), memory.end(), std::byte{0xee});
    BlockRequest zero = request(command, 1001, 70'003);
    POINTERS_EQUAL(&zero, answer_to(zero));
    CHECK(is_filled(0, 1001, 0xee));
    CHECK(is_filled(1001, 70'003, 0));
    CHECK(is_filled(1001 + 70'003, kVolumeBytes - 1001 - 70'003, 0xee));
  }
}

TEST(VolumeService, ALongZeroingLeavesOthersTheirTurnAndIsAnsweredOnlyWhenDone) {
  BlockRequest zero = request(nbd::Command::kWriteZeroes, 0, kVolumeBytes);
  push(zero);
  uint32_t polls = 0;
  BlockRequest* done = nullptr;
  while (done != &zero) {
    BlockRequest read = request(nbd::Command::kRead, 0, 1);
    push(read);
    CHECK(service.poll(64) > 0);
    POINTERS_EQUAL(&read, reply());
    done = reply();
    ++polls;
    CHECK(polls < 100);
    if (done == nullptr) CHECK(!is_filled(0, kVolumeBytes, 0));
  }
  CHECK(polls >= 8);  // each slice has at most 1 MiB
  CHECK(is_filled(0, kVolumeBytes, 0));
  LONGS_EQUAL(0, service.poll(64));
}

TEST(VolumeService, TwoLongZeroingsTakeTurns) {
  BlockRequest first = request(nbd::Command::kWriteZeroes, 0, 4 * kMiB);
  BlockRequest second = request(nbd::Command::kTrim, 4 * kMiB, 4 * kMiB);
  BlockRequest third = request(nbd::Command::kWriteZeroes, 0, 1);
  push(first);
  push(second);
  push(third);
  std::vector<BlockRequest*> order;
  for (int i = 0; i < 100 && order.size() < 3; ++i) {
    service.poll(64);
    while (BlockRequest* each = reply()) order.push_back(each);
  }
  CHECK((order == std::vector<BlockRequest*>{&third, &first, &second}));
  CHECK(is_filled(0, kVolumeBytes, 0));
}

TEST(VolumeService, KeepsToItsBudget) {
  std::vector<BlockRequest> reads(100, request(nbd::Command::kRead, 0, 1));
  for (BlockRequest& each : reads) push(each);
  LONGS_EQUAL(10, service.poll(10));
  for (int i = 0; i < 10; ++i) POINTERS_EQUAL(&reads[static_cast<size_t>(i)], reply());
  POINTERS_EQUAL(nullptr, reply());
}

TEST(VolumeService, RingsOnlyWhenItHasReplied) {
  parts->doorbell.announce_sleep();
  LONGS_EQUAL(0, service.poll(64));
  CHECK(!is_rung());
  BlockRequest zero = request(nbd::Command::kWriteZeroes, 0, 2 * kMiB);
  push(zero);
  service.poll(64);
  CHECK(!is_rung());  // half of the range is zeroed
  service.poll(64);
  CHECK(is_rung());
  POINTERS_EQUAL(&zero, reply());
}

TEST(VolumeService, AReplyGoesToTheShardOfItsConnection) {
  const auto more = std::make_unique<Parts>();
  auto* const other_requests = BlockRequestFifo::create(more->request_lane.bytes, kLaneItems);
  auto* const other_replies = BlockRequestFifo::create(more->reply_lane.bytes, kLaneItems);
  VolumeLanes both[2] = {ends[0], {other_requests, {other_replies}}};
  service.create(both, loop);
  const auto other_reply = [other_replies]() -> BlockRequest* {
    BlockRequest* one[1] = {};
    return other_replies->pop_batch(one) == 1 ? one[0] : nullptr;
  };
  BlockRequest here = request(nbd::Command::kRead, 0, 1);
  BlockRequest there = request(nbd::Command::kWriteZeroes, 0, 512);
  there.home = 1;
  CHECK(other_requests->try_push(&there));
  push(here);
  service.poll(64);
  POINTERS_EQUAL(&here, reply());
  POINTERS_EQUAL(&there, other_reply());
  // The same for requests that were held.
  LONGS_EQUAL(0, service.hold(volume, true));
  CHECK(other_requests->try_push(&there));
  push(here);
  service.poll(64);
  POINTERS_EQUAL(nullptr, other_reply());
  LONGS_EQUAL(2, service.hold(volume, false));
  service.poll(64);
  POINTERS_EQUAL(&here, reply());
  POINTERS_EQUAL(&there, other_reply());
  POINTERS_EQUAL(nullptr, reply());
}

TEST(VolumeService, ServesWithoutADoorbellOnTheSameShard) {
  ends[0].replies.doorbell = nullptr;
  BlockRequest read = request(nbd::Command::kRead, 0, 1);
  POINTERS_EQUAL(&read, answer_to(read));
}

TEST(VolumeService, AnyRequestsComeBackOnceAndLeaveTheModelsBytes) {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  std::vector<std::byte> model = memory;
  std::vector<BlockRequest> slots(64);
  std::vector<bool> is_out(64, false);
  uint64_t grants = 0;
  bool good = true;
  for (int step = 0; step < 3'000 && good; ++step) {
    const size_t index = random() % slots.size();
    BlockRequest& each = slots[index];
    if (!is_out[index]) {
      const auto length = static_cast<uint32_t>(1 + (random() >> (44 + random() % 20)) % 2'000'000);
      const uint64_t offset = random() % (kVolumeBytes - length + 1);
      constexpr nbd::Command kCommands[] = {nbd::Command::kRead, nbd::Command::kWrite,
                                            nbd::Command::kTrim, nbd::Command::kWriteZeroes};
      each = request(kCommands[random() % 4], offset, length);
      if (each.wire.command == nbd::Command::kWrite) ++grants;
      const bool zeroes = each.wire.command >= nbd::Command::kTrim;
      if (zeroes) std::memset(&model[offset], 0, length);
      push(each);
      is_out[index] = true;
    }
    service.poll(static_cast<uint32_t>(1 + random() % 8));
    while (BlockRequest* back = reply()) {
      const auto which = static_cast<size_t>(back - slots.data());
      good &= which < slots.size() && is_out[which];
      if (!good) break;
      is_out[which] = false;
      const bool has_data = back->wire.command < nbd::Command::kDisc;
      good &= !has_data || back->data == &memory[back->wire.offset];
    }
  }
  for (int i = 0; i < 10'000 && service.poll(64) > 0; ++i) {
    while (BlockRequest* back = reply()) is_out[static_cast<size_t>(back - slots.data())] = false;
  }
  good &= std::none_of(is_out.begin(), is_out.end(), [](bool out) { return out; });
  good &= parts->counters.grants.read() == grants;
  CHECK_TEXT(good, seed.text());
  CHECK_TEXT(memory == model, seed.text());
}
