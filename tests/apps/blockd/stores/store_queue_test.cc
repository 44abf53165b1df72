// StoreQueue turns requests into operations of a store, which delays, reorders and fails them.
#include "apps/blockd/stores/store_queue_datapath.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "tests/apps/blockd/stores/store_queue_fixture.h"
#include "tests/support/probe_counter.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;
using nbd::Command;
using nbd::ErrorCode;

TEST_GROUP_BASE(StoreQueue, StoreQueueFixture) {
  std::vector<std::byte> expected;
  std::optional<test::ProbeCounter> counter;

  void remember() { expected = store->seen; }
  void expect_filled(uint64_t offset, uint64_t length, std::byte with) {
    std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(offset), length, with);
  }
  static uint64_t address(const std::byte* pointer) { return reinterpret_cast<uint64_t>(pointer); }
};

TEST(StoreQueue, AReadIsSentFromTheMemoryThatTheStoreReadsInto) {
  BlockRequest read = request(Command::kRead, 4 * kBlock, 3 * kBlock);
  push(read);
  POINTERS_EQUAL(nullptr, reply());
  LONGS_EQUAL(1, store->begun.size());
  std::byte* const memory_of_store = store->begun[0]->memory;
  LONGS_EQUAL(0, address(memory_of_store) % kBlock);
  CHECK_EQUAL(0, counted().operations_ended.read());
  CHECK(done(read) == ErrorCode::kNone);
  CHECK_EQUAL(1, counted().operations_ended.read());
  POINTERS_EQUAL(memory_of_store, read.data);
  MEMCMP_EQUAL(&store->seen[4 * kBlock], read.data, 3 * kBlock);
  const uint64_t taken = counted().buffer_bytes.read();
  CHECK(taken > 0);
  give_back(read);
  POINTERS_EQUAL(&read, reply());
  CHECK_EQUAL(taken, counted().buffer_peak_bytes.read());
  expect_quiet();
}

TEST(StoreQueue, AReadThatIsNotAlignedReadsItsBlocks) {
  BlockRequest read = request(Command::kRead, kBlock + 7, kBlock);
  push(read);
  UNSIGNED_LONGS_EQUAL(kBlock, store->begun[0]->offset);
  UNSIGNED_LONGS_EQUAL(2 * kBlock, store->begun[0]->bytes);
  POINTERS_EQUAL(store->begun[0]->memory + 7, (done(read), read.data));
  MEMCMP_EQUAL(&store->seen[kBlock + 7], read.data, kBlock);
  give_back(read);
  POINTERS_EQUAL(&read, reply());
  expect_quiet();
}

TEST(StoreQueue, APayloadIsReceivedIntoTheMemoryThatTheStoreWritesFrom) {
  remember();
  BlockRequest write = request(Command::kWrite, 8 * kBlock, 2 * kBlock);
  push(write);
  POINTERS_EQUAL(&write, reply());
  CHECK_EQUAL(1, lanes->counters.grants.read());
  std::byte* const data = write.data;
  LONGS_EQUAL(0, address(data) % kBlock);
  CHECK(store->begun.empty());
  std::memset(data, 0x11, 2 * kBlock);
  give_back(write, RequestStep::kCommit);
  POINTERS_EQUAL(data, store->begun[0]->memory);
  CHECK_FALSE(store->begun[0]->is_durable);
  POINTERS_EQUAL(nullptr, reply());  // no reply before the operation completes
  CHECK(done(write) == ErrorCode::kNone);
  CHECK_EQUAL(1, lanes->counters.commits.read());
  expect_filled(8 * kBlock, 2 * kBlock, std::byte{0x11});
  CHECK(store->seen == expected);
  expect_quiet();
}

// The probes also fire for a grant, and for BLOCK_STATUS on a store without extents. Both end
// without an operation of the store.
TEST(StoreQueue, ProbesTellOfWhatBeginsAndEndsAtOnce) {
  add_volume(1, kBytes, false);
  Volume* const own = volume;
  Volume* const of_other = &volumes.back();
  for (const char* name : {"request_begun", "request_done"}) {
    test::ProbeCounter& probe = counter.emplace(name);
    BlockRequest write = request(Command::kWrite, 0, 4096);
    push(write);
    POINTERS_EQUAL(&write, reply());
    LONGS_EQUAL(1, probe.taken());
    give_back(write, RequestStep::kCommit);
    CHECK(done(write) == ErrorCode::kNone);
    LONGS_EQUAL(1, probe.taken());
    volume = of_other;
    BlockRequest extents = request(Command::kBlockStatus, 0, 4096);
    push(extents);
    POINTERS_EQUAL(&extents, reply());
    LONGS_EQUAL(1, probe.taken());
    volume = own;
    BlockRequest read = request(Command::kRead, 0, 4096);
    push(read);
    CHECK(done(read) == ErrorCode::kNone);
    LONGS_EQUAL(1, probe.taken());
    for (BlockRequest* each : {&write, &read}) {
      if (!each->has_buffer) continue;
      give_back(*each);
      POINTERS_EQUAL(each, reply());
    }
    LONGS_EQUAL(0, probe.taken());
  }
  expect_quiet();
}

TEST(StoreQueue, APayloadThatHasComeWithItsHeaderIsCopiedAndCommittedAfterwards) {
  remember();
  std::vector<std::byte> payload(100, std::byte{0x22});
  BlockRequest write = request(Command::kWrite, 1000, 100);
  write.step = RequestStep::kStore;
  write.data = payload.data();
  push(write);
  POINTERS_EQUAL(&write, reply());
  CHECK(write.step == RequestStep::kStored);
  std::fill(payload.begin(), payload.end(), std::byte{0});  // the connection owns the payload again
  CHECK(store->begun.empty());
  give_back(write, RequestStep::kCommit);
  CHECK(done(write) == ErrorCode::kNone);
  expect_filled(1000, 100, std::byte{0x22});
  CHECK(store->seen == expected);
  expect_quiet();
}

TEST(StoreQueue, AnAbortedWriteGivesItsBufferBackAndTouchesNothing) {
  BlockRequest write = request(Command::kWrite, 0, 4 * kBlock);
  push(write);
  POINTERS_EQUAL(&write, reply());
  give_back(write, RequestStep::kAbort);
  POINTERS_EQUAL(&write, reply());
  CHECK_EQUAL(1, lanes->counters.aborts.read());
  expect_quiet();
}

// Covers every position of a range among three blocks.
TEST(StoreQueue, WritesAndZeroesChangeExactlyTheirBytes) {
  const uint32_t borders[] = {
      0, 1, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock - 1, 2 * kBlock, 2 * kBlock + 1, 3 * kBlock};
  for (const Command command : {Command::kWrite, Command::kWriteZeroes}) {
    for (const uint32_t begin : borders) {
      for (const uint32_t end : borders) {
        if (end <= begin) continue;
        for (uint64_t i = 0; i < 4 * kBlock; ++i) store->seen[i] = std::byte{0x77};
        remember();
        CHECK(do_one(command, begin, end - begin) == ErrorCode::kNone);
        const bool is_write = command == Command::kWrite;
        expect_filled(begin, end - begin, is_write ? std::byte{0xaa} : std::byte{0});
        CHECK(store->seen == expected);
      }
    }
  }
  expect_quiet();
}

TEST(StoreQueue, ATrimGivesUpWholeBlocksAlone) {
  remember();
  BlockRequest trim = request(Command::kTrim, 100, 3 * kBlock);
  push(trim);
  CHECK(store->begun[0]->action == StoreAction::kDiscard);
  UNSIGNED_LONGS_EQUAL(kBlock, store->begun[0]->offset);
  UNSIGNED_LONGS_EQUAL(2 * kBlock, store->begun[0]->bytes);
  CHECK(done(trim) == ErrorCode::kNone);
  CHECK(do_one(Command::kTrim, 5 * kBlock + 1, 10) == ErrorCode::kNone);
  expect_filled(kBlock, 2 * kBlock, std::byte{0});
  CHECK(store->seen == expected);
  BlockRequest refused = request(Command::kTrim, 0, kBlock);
  push(refused);
  store->complete(0, EOPNOTSUPP);  // a trim is only a hint
  CHECK(done(refused) == ErrorCode::kNone);
  expect_quiet();
}

TEST(StoreQueue, NeighboursInOneBlockDoNotLoseOneAnothersBytes) {
  remember();
  BlockRequest first = request(Command::kWrite, 10, 20);
  BlockRequest second = request(Command::kWrite, 30, 20);
  BlockRequest third = request(Command::kWrite, 0, 2 * kBlock);  // aligned
  BlockRequest apart = request(Command::kWrite, 2 * kBlock, kBlock);
  commit(first, std::byte{1});
  commit(second, std::byte{2});
  LONGS_EQUAL(1, store->begun.size());
  commit(apart, std::byte{4});
  LONGS_EQUAL(2, store->begun.size());
  store->complete(1);
  POINTERS_EQUAL(&apart, reply());
  store->complete();  // the block is read
  store->complete();  // the block is written
  POINTERS_EQUAL(&first, reply());
  commit(third, std::byte{3});
  LONGS_EQUAL(1, store->begun.size());  // `third` waits for `second`
  store->complete();
  store->complete();
  POINTERS_EQUAL(&second, reply());
  expect_filled(10, 20, std::byte{1});
  expect_filled(30, 20, std::byte{2});
  expect_filled(2 * kBlock, kBlock, std::byte{4});
  CHECK(store->seen == expected);
  CHECK(done(third) == ErrorCode::kNone);
  expect_filled(0, 2 * kBlock, std::byte{3});
  CHECK(store->seen == expected);
  expect_quiet();
}

TEST(StoreQueue, FuaLastsAndFlushIsPassedOn) {
  BlockRequest write = request(Command::kWrite, 0, kBlock, nbd::kCommandFlagFua);
  commit(write, std::byte{5});
  CHECK(store->begun[0]->is_durable);
  CHECK(done(write) == ErrorCode::kNone);
  BlockRequest flush = request(Command::kFlush, 0, 0);
  push(flush);
  CHECK(store->begun[0]->action == StoreAction::kFlush);
  POINTERS_EQUAL(nullptr, reply());
  CHECK(done(flush) == ErrorCode::kNone);
  for (const Command command : {Command::kTrim, Command::kWriteZeroes}) {
    BlockRequest zero = request(command, 3, 4 * kBlock, nbd::kCommandFlagFua);
    push(zero);
    while (store->begun.size() == 1 && store->begun[0]->action != StoreAction::kFlush) {
      POINTERS_EQUAL(nullptr, reply());
      store->complete();
    }
    LONGS_EQUAL(1, store->begun.size());  // the last step is a flush
    CHECK(done(zero) == ErrorCode::kNone);
  }
  expect_quiet();
}

TEST(StoreQueue, AnErrorGoesToTheRequestAndTheVolumeGoesOn) {
  const struct {
    int number;
    ErrorCode code;
  } kCases[] = {{EIO, ErrorCode::kEio},       {ENOSPC, ErrorCode::kEnospc},
                {EDQUOT, ErrorCode::kEnospc}, {ENOMEM, ErrorCode::kEnomem},
                {EINVAL, ErrorCode::kEio},    {ENODEV, ErrorCode::kEio}};
  uint64_t errors = 0;
  for (const auto& [number, code] : kCases) {
    for (const Command command : {Command::kRead, Command::kWrite, Command::kWriteZeroes}) {
      BlockRequest each = request(command, 1, 3 * kBlock);
      if (command == Command::kWrite) commit(each, std::byte{6});
      if (command != Command::kWrite) push(each);
      store->complete(0, number);
      CHECK(done(each) == code);
      CHECK_FALSE(each.has_buffer);
      ++errors;
      CHECK_EQUAL(errors, counted().errors.read());
      CHECK(do_one(Command::kRead, 0, kBlock) == ErrorCode::kNone);
    }
  }
  CHECK(do_one(Command::kFlush, 0, 0) == ErrorCode::kNone);
  expect_quiet();
}

TEST(StoreQueue, AfterAFailedFlushNothingPromisesDurability) {
  BlockRequest flush = request(Command::kFlush, 0, 0);
  push(flush);
  store->complete(0, EIO);
  CHECK(done(flush) == ErrorCode::kEio);
  CHECK_EQUAL(1, counted().has_failed_flush.read());
  const uint64_t before = store->completed_count;
  CHECK(do_one(Command::kFlush, 0, 0) == ErrorCode::kEio);
  CHECK(do_one(Command::kWrite, 0, kBlock, nbd::kCommandFlagFua) == ErrorCode::kEio);
  CHECK(do_one(Command::kTrim, 0, kBlock, nbd::kCommandFlagFua) == ErrorCode::kEio);
  CHECK_EQUAL(before, store->completed_count);  // the store gets no operation
  CHECK(do_one(Command::kRead, 0, kBlock, nbd::kCommandFlagFua) == ErrorCode::kNone);
  CHECK(do_one(Command::kWrite, 0, kBlock) == ErrorCode::kNone);
  expect_quiet();
}

// A durable write that fails is retried without durability. If the retry succeeds, durability has
// failed, as with a flush.
TEST(StoreQueue, ABadSectorUnderFuaIsNoFailedFlush) {
  BlockRequest write = request(Command::kWrite, 0, kBlock, nbd::kCommandFlagFua);
  commit(write, std::byte{7});
  store->complete(0, EIO);
  CHECK_FALSE(store->begun[0]->is_durable);
  store->complete(0, EIO);
  CHECK(done(write) == ErrorCode::kEio);
  CHECK(do_one(Command::kFlush, 0, 0) == ErrorCode::kNone);
  BlockRequest other = request(Command::kWrite, 0, kBlock, nbd::kCommandFlagFua);
  commit(other, std::byte{7});
  store->complete(0, EIO);
  store->complete();
  CHECK(done(other) == ErrorCode::kEio);
  CHECK(do_one(Command::kFlush, 0, 0) == ErrorCode::kEio);
  expect_quiet();
}

TEST(StoreQueue, WhatTheStoreCannotZeroIsWrittenUnlessItMustBeFast) {
  remember();
  BlockRequest zero = request(Command::kWriteZeroes, 0, 200 * 1024);
  push(zero);
  CHECK(store->begun[0]->action == StoreAction::kWriteZeroes && !store->begun[0]->keeps_room);
  store->complete(0, EOPNOTSUPP);
  CHECK(store->begun[0]->action == StoreAction::kWriteZeroes && store->begun[0]->keeps_room);
  store->complete(0, EOPNOTSUPP);
  CHECK(store->begun[0]->action == StoreAction::kWrite);
  CHECK(done(zero) == ErrorCode::kNone);
  expect_filled(0, 200 * 1024, std::byte{0});
  CHECK(store->seen == expected);
  BlockRequest fast = request(Command::kWriteZeroes, 0, kBlock, nbd::kCommandFlagFastZero);
  push(fast);
  store->complete(0, EOPNOTSUPP);
  store->complete(0, EOPNOTSUPP);
  CHECK(done(fast) == ErrorCode::kEnotsup);
  CHECK_EQUAL(0, counted().errors.read());
  expect_quiet();
}

TEST(StoreQueue, WhereZeroingInPlaceMayTakeLongFastZeroIsRefused) {
  MadeUpStore& device = add_volume(2, kBytes, false, false);
  volume = &volumes.back();
  BlockRequest zero = request(Command::kWriteZeroes, 0, kBlock,
                              nbd::kCommandFlagFastZero | nbd::kCommandFlagNoHole);
  push(zero);
  POINTERS_EQUAL(&zero, reply());
  CHECK(zero.error == ErrorCode::kEnotsup);
  BlockRequest hole = request(Command::kWriteZeroes, 0, kBlock, nbd::kCommandFlagFastZero);
  push(hole);
  device.complete(0, EOPNOTSUPP);
  POINTERS_EQUAL(&hole, reply());
  CHECK(hole.error == ErrorCode::kEnotsup);
  CHECK(device.begun.empty());
  expect_quiet();
}

TEST(StoreQueue, ExtentsAreToldAsTheStoreTellsThem) {
  store->extents = {{4096, true}, {8192, false}, {512, true}};
  BlockRequest status = request(Command::kBlockStatus, 100, 12800);
  push(status);
  UNSIGNED_LONGS_EQUAL(100, store->begun[0]->offset);
  CHECK(done(status) == ErrorCode::kNone);
  const unsigned char wanted[] = {0, 0, 16, 0, 0, 0, 0, 0,  // data
                                  0, 0, 32, 0, 0, 0, 0, 3,  // hole, zero
                                  0, 0, 2,  0, 0, 0, 0, 0};
  LONGS_EQUAL(sizeof wanted, status.done_bytes);
  MEMCMP_EQUAL(wanted, status.data, sizeof wanted);
  give_back(status);
  POINTERS_EQUAL(&status, reply());
  BlockRequest one = request(Command::kBlockStatus, 0, 12800, nbd::kCommandFlagReqOne);
  push(one);
  LONGS_EQUAL(1, store->begun[0]->extent_count_max);
  CHECK(done(one) == ErrorCode::kNone);
  LONGS_EQUAL(8, one.done_bytes);
  give_back(one);
  POINTERS_EQUAL(&one, reply());
  expect_quiet();
}

TEST(StoreQueue, AStoreThatKnowsNoExtentsHasDataEverywhere) {
  MadeUpStore& device = add_volume(2, kBytes, false);
  volume = &volumes.back();
  BlockRequest status = request(Command::kBlockStatus, 0, 4096);
  push(status);
  POINTERS_EQUAL(&status, reply());
  POINTERS_EQUAL(nullptr, status.data);
  CHECK(device.begun.empty());
}

TEST(StoreQueue, MoreThanItsOperationsWaitInOrder) {
  std::vector<BlockRequest> reads(10, request(Command::kRead, 0, kBlock));
  for (BlockRequest& each : reads) push(each);
  LONGS_EQUAL(4, store->begun.size());
  CHECK_EQUAL(4, counted().operations.read());
  CHECK_EQUAL(4, counted().operations_peak.read());
  CHECK_EQUAL(6, counted().requests_waiting.read());
  for (BlockRequest& each : reads) {
    store->complete();
    POINTERS_EQUAL(&each, reply());
    give_back(each);
    POINTERS_EQUAL(&each, reply());
  }
  expect_quiet();
}

// `bedplate trace` shows that a waiting request has not begun.
TEST(StoreQueue, ARequestHasBegunWithItsOperationAndIsDoneWithIt) {
  std::vector<BlockRequest> reads(5, request(Command::kRead, 0, kBlock));
  for (BlockRequest& each : reads) {
    each.trace.begin(loop.look_at_clock());
    push(each);
  }
  CHECK(has_passed(reads[3], kBegun));
  CHECK(!has_passed(reads[4], kBegun));
  let_time_pass();
  CHECK(!has_passed(reads[0], kDone));
  store->complete();
  CHECK(passed(reads[0], kDone) > passed(reads[0], kBegun));
  CHECK(has_passed(reads[4], kBegun));
  CHECK(!has_passed(reads[1], kDone));
  CHECK(!has_passed(reads[4], kDone));
  store->complete_all();
  for (BlockRequest& each : reads) {
    POINTERS_EQUAL(&each, reply());
    CHECK(has_passed(each, kDone));
  }
  for (BlockRequest& each : reads) {
    give_back(each);
    POINTERS_EQUAL(&each, reply());
  }
  expect_quiet();
}

TEST(StoreQueue, WhatTakesNoOperationHasBegunAndIsDoneToo) {
  add_volume(2, kBytes, false);
  volume = &volumes.back();
  BlockRequest status = request(Command::kBlockStatus, 0, 4096);
  status.trace.begin(loop.look_at_clock());
  push(status);
  POINTERS_EQUAL(&status, reply());
  CHECK(has_passed(status, kBegun) && has_passed(status, kDone));
}

// The commit overwrites the stations that the grant has passed.
TEST(StoreQueue, AWriteHasBegunWhenItIsWritten) {
  BlockRequest write = request(Command::kWrite, 0, kBlock);
  write.trace.begin(loop.look_at_clock());
  push(write);
  POINTERS_EQUAL(&write, reply());
  const uint32_t granted = passed(write, kDone);
  let_time_pass();
  give_back(write, RequestStep::kCommit);
  CHECK(passed(write, kBegun) > granted);
  let_time_pass();
  CHECK(done(write) == ErrorCode::kNone);
  CHECK(passed(write, kDone) > passed(write, kBegun));
}

TEST(StoreQueue, WhatFindsNoBufferWaitsAndIsNotOvertaken) {
  constexpr uint32_t kLarge = 32 * kMiB;
  MadeUpStore& large = add_volume(4, uint64_t{kLarge} * 2);
  volume = &volumes.back();
  BlockRequest first = request(Command::kWrite, 1, kLarge);
  BlockRequest second = request(Command::kWrite, kLarge, kLarge / 2);
  BlockRequest third = request(Command::kRead, 0, 4096);
  push(first);
  POINTERS_EQUAL(&first, reply());
  push(second);
  push(third);
  POINTERS_EQUAL(nullptr, reply());
  CHECK(large.begun.empty());
  CHECK_EQUAL(2, lanes->store_counters[1].requests_waiting.read());
  give_back(first, RequestStep::kAbort);
  POINTERS_EQUAL(&first, reply());
  POINTERS_EQUAL(&second, reply());
  LONGS_EQUAL(1, large.begun.size());
  give_back(second, RequestStep::kAbort);
  POINTERS_EQUAL(&second, reply());
}

TEST(StoreQueue, AStoreThatDoesNotAnswerHoldsUpNoOther) {
  std::vector<BlockRequest> reads(32, request(Command::kRead, 0, kBlock));
  for (BlockRequest& each : reads) push(each);
  LONGS_EQUAL(4, store->begun.size());
  MadeUpStore& other = add_volume(4, kBytes);
  volume = &volumes.back();
  for (int i = 0; i < 100; ++i) {
    BlockRequest read = request(Command::kRead, 0, kBlock);
    push(read);
    LONGS_EQUAL(1, other.begun.size());
    other.complete();
    POINTERS_EQUAL(&read, reply());
    give_back(read);
    POINTERS_EQUAL(&read, reply());
  }
  CHECK_EQUAL(28, counted().requests_waiting.read());
}

TEST(StoreQueue, TellsHowMuchItsStoreMayHaveAtOnce) {
  add_volume(7, kBytes);
  CHECK_EQUAL(4, lanes->store_counters[0].operations_max.read());
  CHECK_EQUAL(7, lanes->store_counters[1].operations_max.read());
  for (const StoreCounters& each : lanes->store_counters) {
    CHECK_EQUAL(align_up(StoreQueue::kBufferBytesMin, kMiB), each.buffer_max_bytes.read());
  }
}

TEST(StoreQueue, AFileThatHasBecomeShorterIsAnError) {
  BlockRequest read = request(Command::kRead, 0, 2 * kBlock);
  push(read);
  StoreOperation& operation = *store->begun[0];
  store->begun.clear();
  operation.completed(operation.context, kBlock);
  POINTERS_EQUAL(&read, reply());
  CHECK(read.error == ErrorCode::kEio);
  expect_quiet();
}

// Random requests, completed in any order. Requests under way often share blocks, but never bytes,
// so the model knows each byte at the end.
TEST(StoreQueue, AnyRequestsInAnyOrderLeaveTheModelsBytes) {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  remember();
  struct Slot {
    BlockRequest request;
    bool is_out = false;
    std::byte fill = {};
  };
  std::vector<Slot> slots(12);
  constexpr uint64_t kSpan = 16 * kBlock;
  bool good = true;
  uint64_t done_count = 0;
  for (int round = 0; round < 30'000 && good; ++round) {
    Slot& slot = slots[random() % slots.size()];
    const auto length = static_cast<uint32_t>(1 + random() % (random() % 2 == 0 ? 40 : 1500));
    const uint64_t offset = random() % (kSpan - length);
    const bool is_free = std::none_of(slots.begin(), slots.end(), [&](const Slot& each) {
      const nbd::Request& other = each.request.wire;
      return each.is_out && other.offset < offset + length && offset < other.offset + other.length;
    });
    if (!slot.is_out && is_free && random() % 3 != 0) {
      constexpr Command kCommands[] = {Command::kRead, Command::kWrite, Command::kWriteZeroes};
      slot.request = request(kCommands[random() % 3], offset, length,
                             random() % 4 == 0 ? nbd::kCommandFlagFua : uint16_t{0});
      slot.is_out = true;
      slot.fill = static_cast<std::byte>(random());
      push(slot.request);
    } else if (!store->begun.empty()) {
      store->complete(random() % store->begun.size());
    }
    while (BlockRequest* back = reply()) {
      Slot& its = *reinterpret_cast<Slot*>(back);
      good &= its.is_out && back->error == ErrorCode::kNone;
      const nbd::Request& wire = back->wire;
      const bool is_granted = wire.command == Command::kWrite && back->step == RequestStep::kSubmit;
      if (is_granted) {
        std::memset(back->data, static_cast<int>(its.fill), wire.length);
        give_back(*back, RequestStep::kCommit);
        continue;
      }
      if (wire.command == Command::kRead && back->step == RequestStep::kSubmit) {
        good &= std::memcmp(back->data, &expected[wire.offset], wire.length) == 0;
        give_back(*back);
        continue;
      }
      if (wire.command == Command::kWrite) expect_filled(wire.offset, wire.length, its.fill);
      if (wire.command == Command::kWriteZeroes) {
        expect_filled(wire.offset, wire.length, std::byte{0});
      }
      its.is_out = false;
      ++done_count;
    }
    for (const Volume& each : volumes) good &= each.queue->is_valid();
  }
  CHECK_TEXT(good && done_count > 1'000, seed.text());
  for (Slot& slot : slots) {
    for (int i = 0; i < 100 && slot.is_out; ++i) {
      store->complete_all();
      while (BlockRequest* back = reply()) {
        Slot& its = *reinterpret_cast<Slot*>(back);
        const nbd::Request& wire = back->wire;
        const bool is_first = back->step == RequestStep::kSubmit;
        if (wire.command == Command::kWrite && is_first) {
          std::memset(back->data, static_cast<int>(its.fill), wire.length);
          give_back(*back, RequestStep::kCommit);
        } else if (wire.command == Command::kRead && is_first) {
          give_back(*back);
        } else {
          if (wire.command == Command::kWrite) expect_filled(wire.offset, wire.length, its.fill);
          if (wire.command == Command::kWriteZeroes) {
            expect_filled(wire.offset, wire.length, std::byte{0});
          }
          its.is_out = false;
        }
      }
    }
  }
  expect_quiet();
  CHECK_TEXT(store->seen == expected, seed.text());
}
