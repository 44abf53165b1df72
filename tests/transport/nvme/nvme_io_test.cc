// Operations of any length on a controller that answers out of order, fails, or has no free entry.
#include "transport/nvme/nvme_io_datapath.h"

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/datapath_law.h"
#include "tests/support/seed.h"
#include "tests/transport/nvme/nvme_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(NvmeIo) {
  NvmeRig rig;

  void fill(uint64_t offset, uint64_t bytes, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (uint64_t i = 0; i < bytes; i += 4) {
      const auto word = static_cast<uint32_t>(random());
      std::memcpy(rig.data + offset + i, &word, sizeof word);
    }
  }
  int ask(NvmeAction action, uint64_t first, uint64_t count, uint64_t data_offset = 0) {
    NvmeAsked asked;
    rig.begin(asked, action, first, count, data_offset);
    LONGS_EQUAL(0, asked.done_count);  // never from within begin()
    rig.turn(10);
    CHECK(asked.is_done());
    return asked.outcome;
  }
};

TEST(NvmeIo, ReadsWhatItWrote) {
  CHECK(rig.start());
  fill(0, 4096, 1);
  LONGS_EQUAL(0, ask(NvmeAction::kWrite, 3, 8));
  MEMCMP_EQUAL(rig.data, &rig.drive.disk[3 * 512], 4096);
  LONGS_EQUAL(0, ask(NvmeAction::kRead, 4, 7, 1 << 20));
  MEMCMP_EQUAL(rig.data + 512, rig.data + (1 << 20), 7 * 512);
}

TEST(NvmeIo, ALongOneIsSeveralCommandsOfUnalignedMemory) {
  rig.drive.transfer_log2 = 2;  // 16 KiB
  CHECK(rig.start());
  LONGS_EQUAL(32, rig.controller.space(0).transfer_blocks_max);
  const uint64_t blocks = 1000;  // 32 commands of 7 slots
  fill(516, blocks * 512, 2);
  LONGS_EQUAL(0, ask(NvmeAction::kWrite, 1, blocks, 516));
  LONGS_EQUAL(32, rig.drive.commands.size());
  MEMCMP_EQUAL(rig.data + 516, &rig.drive.disk[512], blocks * 512);
  LONGS_EQUAL(0, ask(NvmeAction::kRead, 1, blocks, (2 << 20) + 512));
  MEMCMP_EQUAL(rig.data + 516, rig.data + (2 << 20) + 512, blocks * 512);
  LONGS_EQUAL(0, rig.pair().io().queue().outstanding());
}

TEST(NvmeIo, WithoutALimitOfTheControllerTheListIsOne) {
  rig.drive.spaces = {{8192, 9, 0}};
  CHECK(rig.start());
  LONGS_EQUAL(kNvmeTransferBytesMax / 512, rig.controller.space(0).transfer_blocks_max);
  fill(4, 4 << 20, 3);
  LONGS_EQUAL(0, ask(NvmeAction::kWrite, 0, 8192, 4));
  LONGS_EQUAL(2, rig.drive.commands.size());
  MEMCMP_EQUAL(rig.data + 4, rig.drive.disk.data(), 4 << 20);
}

TEST(NvmeIo, DurableZeroesAndDeallocatedAreSaidSo) {
  CHECK(rig.start());
  NvmeAsked durable;
  durable.is_durable = true;
  rig.begin(durable, NvmeAction::kWrite, 0, 1);
  NvmeAsked zeroes;
  zeroes.gives_room_back = true;
  rig.begin(zeroes, NvmeAction::kWriteZeroes, 0x5, 6);
  NvmeAsked kept;
  rig.begin(kept, NvmeAction::kWriteZeroes, 0x5, 6);
  NvmeAsked deallocate;
  rig.begin(deallocate, NvmeAction::kDeallocate, 7, 8);
  NvmeAsked flush;
  rig.begin(flush, NvmeAction::kFlush, 0, 0);
  NvmeAsked read;
  read.is_durable = true;  // says nothing about a read
  rig.begin(read, NvmeAction::kRead, 0, 1);
  rig.turn(2);
  for (NvmeAsked* asked : {&durable, &zeroes, &kept, &deallocate, &flush, &read}) {
    CHECK(asked->is_done());
    LONGS_EQUAL(0, asked->outcome);
  }
  const std::vector<nvme::Command>& commands = rig.drive.commands;
  LONGS_EQUAL(6, commands.size());
  LONGS_EQUAL(nvme::kForceUnitAccess, commands[0].word12);
  LONGS_EQUAL(0, commands[5].word12);
  LONGS_EQUAL(nvme::kDeallocateZeroes | 5, commands[1].word12);
  LONGS_EQUAL(5, commands[1].word10);
  LONGS_EQUAL(5, commands[2].word12);
  LONGS_EQUAL(nvme::kDatasetManagement, commands[3].opcode);
  LONGS_EQUAL(nvme::kDeallocate, commands[3].word11);
  LONGS_EQUAL(nvme::kFlush, commands[4].opcode);
  LONGS_EQUAL(1, commands[4].space);
}

TEST(NvmeIo, WhatTheControllerCannotIsSaidAtOnce) {
  rig.drive.optionals = 0;
  CHECK(rig.start());
  LONGS_EQUAL(EOPNOTSUPP, ask(NvmeAction::kWriteZeroes, 0, 1));
  LONGS_EQUAL(EOPNOTSUPP, ask(NvmeAction::kDeallocate, 0, 1));
  LONGS_EQUAL(0, rig.drive.commands.size());
}

TEST(NvmeIo, IsNotValidWithAnOperationInAListWhereItDoesNotBelong) {
  rig.drive.optionals = 0;
  CHECK(rig.start());
  const NvmeIo& io = rig.pair().io();
  const auto check_spoiled_by = [&](uint64_t& number, uint64_t by) {
    CHECK(io.is_valid());
    const uint64_t before = std::exchange(number, by);
    CHECK(!io.is_valid());
    number = before;
    CHECK(io.is_valid());
  };
  NvmeAsked refused;
  rig.begin(refused, NvmeAction::kDeallocate, 0, 1);
  check_spoiled_by(refused.blocks_left, 1);  // it has ended, but some blocks are left
  NvmeAsked asked[16];                       // more than the queue has entries
  for (NvmeAsked& each : asked) rig.begin(each, NvmeAction::kRead, 0, 8);
  check_spoiled_by(asked[14].blocks_left, 0);  // it waits, but no block is left
  check_spoiled_by(asked[14].blocks_left, 9);
  check_spoiled_by(asked[15].blocks_left, 3);  // begun, behind operations that have not begun
  rig.turn(20);
  for (const NvmeAsked& each : asked) LONGS_EQUAL(0, each.outcome);
  CHECK(refused.is_done());
}

TEST(NvmeIo, AStatusBecomesAnErrorOfThatRequestAlone) {
  CHECK(rig.start());
  const struct {
    uint16_t status;
    int error;
  } cases[] = {{0x281, EIO},   {0x280, EIO},        {0x081, ENOSPC},       {0x020, EROFS},
               {0x182, EROFS}, {0x001, EOPNOTSUPP}, {0x4000 | 0x281, EIO},  // do not retry
               {0x007, EIO}};
  for (const auto& each : cases) {
    rig.drive.statuses = {each.status};
    LONGS_EQUAL(each.error, ask(NvmeAction::kRead, 0, 1));
    LONGS_EQUAL(0, ask(NvmeAction::kRead, 0, 1));
  }
  LONGS_EQUAL(std::size(cases), rig.queue_counters[0].errors.read());
  CHECK(rig.controller.state() == NvmeRig::State::kReady);
}

TEST(NvmeIo, AfterItsFirstErrorALongOneBeginsNothingMore) {
  rig.drive.transfer_log2 = 1;
  CHECK(rig.start());
  rig.drive.statuses = {0, 0, 0x281};
  NvmeAsked asked;
  rig.begin(asked, NvmeAction::kWrite, 0, 16 * 100);
  NvmeAsked behind;
  rig.begin(behind, NvmeAction::kRead, 0, 1);
  rig.turn(5);
  CHECK(asked.is_done() && behind.is_done());
  LONGS_EQUAL(EIO, asked.outcome);
  LONGS_EQUAL(0, behind.outcome);
  LONGS_EQUAL(7 + 1, rig.drive.commands.size());  // those that found an entry, and the read behind
}

TEST(NvmeIo, AnyMixOfRequestsIsAsAModelSays) {
  const Seed seed;
  std::mt19937_64 random(seed.value());
  rig.drive.transfer_log2 = static_cast<uint8_t>(1 + random() % 3);
  rig.drive.holds_io = true;
  CHECK(rig.start());
  std::vector<std::byte> model(rig.drive.disk.size());
  for (int round = 0; round < 300; ++round) {
    // The operations do not overlap on the drive, so their order does not matter.
    constexpr uint64_t kCount = 12;
    NvmeAsked asked[kCount];
    uint64_t first = random() % 8;
    uint64_t data_offset = 4 * (random() % 2048);
    for (NvmeAsked& each : asked) {
      const uint64_t blocks = 1 + random() % 100;
      const uint64_t bytes = blocks * 512;
      const auto action = static_cast<NvmeAction>(random() % 5);
      fill(data_offset, bytes, random());
      std::byte* const target = &model[first * 512];
      if (action == NvmeAction::kWrite) std::memcpy(target, rig.data + data_offset, bytes);
      if (action == NvmeAction::kWriteZeroes || action == NvmeAction::kDeallocate) {
        std::memset(target, 0, bytes);
      }
      rig.begin(each, action, first, blocks, data_offset);
      first += blocks;
      data_offset += bytes + 4 * (random() % 100);
    }
    const auto is_done = [](const NvmeAsked& each) { return each.is_done(); };
    while (!std::all_of(asked, asked + kCount, is_done)) {
      rig.poll(1 + random() % 4);
      rig.drive.step();
      if (random() % 2 == 0) rig.drive.release();
      CHECK_TEXT(rig.pair().io().is_valid() && rig.pair().io().queue().is_valid(), seed.text());
    }
    for (const NvmeAsked& each : asked) {
      LONGS_EQUAL_TEXT(0, each.outcome, seed.text());
      if (each.action != NvmeAction::kRead) continue;
      MEMCMP_EQUAL_TEXT(&model[each.first_block * 512], each.memory, each.block_count * 512,
                        seed.text());
    }
  }
  MEMCMP_EQUAL_TEXT(model.data(), rig.drive.disk.data(), model.size(), seed.text());
}

TEST(NvmeIo, KeepsTheLaw) {
  BP_SKIP_WITHOUT_LAW();
  rig.drive.transfer_log2 = 1;
  CHECK(rig.start());
  rig.turn(50);
  NvmeAsked asked[3];
  rig.drive.commands.reserve(1000);
  const uint32_t breaches = breaches_in([&] {
    rig.begin(asked[0], NvmeAction::kWrite, 0, 16 * 20);  // a part of it waits
    rig.begin(asked[1], NvmeAction::kFlush, 0, 0);
    rig.poll(64);
  });
  LONGS_EQUAL(0, breaches);
  uint32_t more = 0;
  for (int i = 0; i < 10; ++i) {
    rig.drive.step();  // the fake drive may allocate
    more += breaches_in([&] { rig.poll(64); });
  }
  LONGS_EQUAL(0, more);
  CHECK(asked[0].is_done() && asked[1].is_done());
}
