// Programs and PIDs on air, as the tables name them: each change by itself, then random changes
// against a model.
#include "apps/tsrelay/ts_tables_datapath.h"

#include <memory>
#include <vector>

#include "apps/tsrelay/ts_inspector_datapath.h"
#include "tests/apps/tsrelay/ts_air.h"
#include "tests/apps/tsrelay/ts_mux.h"

#include "tests/apps/tsrelay/dice.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

constexpr uint64_t kMs = 1'000'000;

MadeProgram program(uint16_t number, uint16_t pid) {
  return {number,
          pid,
          static_cast<uint16_t>(pid + 1),
          {{0x1B, static_cast<uint16_t>(pid + 1), {}}, {0x0F, static_cast<uint16_t>(pid + 2), {}}},
          0};
}

uint64_t faults(const TsReport& r) {
  return r.sync_losses + r.sync_byte_errors + r.pat_errors + r.continuity_errors + r.pmt_errors +
         r.pid_errors + r.transport_errors + r.crc_errors + r.pcr_discontinuities;
}

}  // namespace

TEST_GROUP(TsTables) {
  std::unique_ptr<TsInspector> inspector = std::make_unique<TsInspector>();
  TsMux mux;
  uint64_t now = 1'000 * kMs;

  const TsTables& tables() { return inspector->tables(); }
  const TsReport& report() { return inspector->report(); }
  void give(const Bytes& packets) {
    inspector->inspect(packets, now);
    CHECK(inspector->is_valid());
  }
  void pat(const std::vector<MadeProgram>& programs, const MadeSectionHead& head = {}) {
    give(mux.table(kPatPid, made_pat(programs, head)));
  }
  void pmt(const MadeProgram& its, bool is_current = true) {
    give(mux.table(its.pid, made_pmt(its, is_current)));
  }
  // Puts these programs on air for `ns`, without the packets of the PID `but`.
  void run(const std::vector<MadeProgram>& programs, uint64_t ns, uint16_t but = kNullPid,
           uint8_t version = 0) {
    for (const uint64_t end = now + ns; now < end; now += 20 * kMs) {
      if (but != kPatPid) pat(programs, {.version = version});
      for (const MadeProgram& its : programs) {
        if (but != its.pid) pmt(its);
        for (const MadeStream& stream : its.streams) {
          const bool is_clock = stream.pid == its.clock_pid;
          if (stream.pid == but) continue;
          give(mux.plain(stream.pid, is_clock ? now * 27 / 1000 : TsMux::kNoPcr));
        }
      }
    }
  }
};

TEST(TsTables, WhatTablesNameNoMoreIsNotMissed) {
  run({program(1, 0x100)}, 1000 * kMs);
  LONGS_EQUAL(0, faults(report()));
  run({program(1, 0x200)}, 7000 * kMs, kNullPid, 1);
  LONGS_EQUAL(0, faults(report()));
  LONGS_EQUAL(1, report().programs);
  CHECK(tables().is_table(0x200) && !tables().is_table(0x100));
  CHECK(tables().is_named(0x202) && !tables().is_named(0x102));
  LONGS_EQUAL(2, tables().named_count());
  LONGS_EQUAL(1, inspector->clock_count());
  LONGS_EQUAL(0x201, inspector->pace_pid());
  // A PID that the tables name now is missed if it does not come.
  run({program(1, 0x200)}, 5200 * kMs, 0x202, 1);
  LONGS_EQUAL(1, report().pid_errors);
  LONGS_EQUAL(1, faults(report()));
}

TEST(TsTables, APidThatIsNamedAgainIsANewOne) {
  run({program(1, 0x100)}, 200 * kMs);
  run({program(1, 0x200)}, 200 * kMs, kNullPid, 1);
  for (uint16_t pid = 0x100; pid < 0x103; ++pid) mux.jump(pid, 11);
  run({program(1, 0x100)}, 200 * kMs, kNullPid, 2);
  LONGS_EQUAL(0, faults(report()));
}

TEST(TsTables, APmtThatChangesWithoutAnotherVersionIsBelieved) {
  MadeProgram its = program(1, 0x100);
  run({its}, 1000 * kMs);
  its.clock_pid = its.streams[0].pid = 0x1F0;
  run({its}, 7000 * kMs);
  LONGS_EQUAL(0, faults(report()));
  CHECK(tables().is_named(0x1F0) && !tables().is_named(0x101));
  // The same for the PAT.
  run({program(2, 0x100)}, 7000 * kMs);
  LONGS_EQUAL(0, faults(report()));
}

TEST(TsTables, WhatIsNotCurrentIsNotOnAir) {
  pat({program(1, 0x100)});
  pmt(program(1, 0x100));
  pat({program(2, 0x200)}, {.version = 1, .is_current = false});
  CHECK(tables().is_table(0x100) && !tables().is_table(0x200));
  MadeProgram next = program(1, 0x100);
  next.streams.clear();
  pmt(next, false);
  CHECK(tables().is_named(0x102));
}

TEST(TsTables, AVersionIsWholeWithAllItsSections) {
  const MadeProgram one = program(1, 0x100);
  const MadeProgram two = program(2, 0x200);
  const MadeProgram three = program(3, 0x300);
  pat({one}, {.version = 0, .section = 0, .last_section = 1});
  pat({two}, {.version = 0, .section = 1, .last_section = 1});
  for (const MadeProgram& its : {one, two}) pmt(its);
  LONGS_EQUAL(2, report().programs);
  CHECK(tables().clock_rank(0x101) < tables().clock_rank(0x201));
  // The first section of the next version: programs that it does not name may be in the second.
  pat({three}, {.version = 1, .section = 0, .last_section = 1});
  LONGS_EQUAL(3, report().programs);
  CHECK(tables().is_named(0x101) && tables().is_named(0x201));
  pat({one}, {.version = 1, .section = 1, .last_section = 1});
  LONGS_EQUAL(2, report().programs);
  CHECK(tables().is_named(0x101) && !tables().is_named(0x201));
  CHECK(tables().clock_rank(0x201) == TsTables::kNoRank);
  // A section that never comes does not keep the old programs for ever.
  pat({two}, {.version = 2, .section = 0, .last_section = 1});
  LONGS_EQUAL(3, report().programs);
  now += 11'000 * kMs;
  pat({two}, {.version = 2, .section = 0, .last_section = 1});
  LONGS_EQUAL(1, report().programs);
}

TEST(TsTables, ProgramsThatEndMakeRoomForOthers) {
  std::vector<MadeProgram> all;
  for (uint16_t i = 0; i < TsTables::kProgramsMax; ++i) {
    all.push_back(program(static_cast<uint16_t>(i + 1), static_cast<uint16_t>(0x100 + 16 * i)));
    // As many PIDs as the tables have space for.
    for (uint16_t pid = 3; pid < 9; ++pid) {
      all.back().streams.push_back({0x06, static_cast<uint16_t>(all.back().pid + pid), {}});
    }
  }
  run(all, 100 * kMs);
  LONGS_EQUAL(TsTables::kProgramsMax, report().programs);
  LONGS_EQUAL(TsTables::kPidsMax, tables().named_count());
  all[5].streams.push_back({0x0F, 0x1F00, {}});
  run(all, 100 * kMs);
  CHECK(!tables().is_named(0x1F00));
  all[6].streams.pop_back();
  run(all, 100 * kMs);
  CHECK(tables().is_named(0x1F00));
  all.push_back(program(77, 0x1E00));
  run(all, 100 * kMs, kNullPid, 1);
  CHECK(!tables().is_table(0x1E00));
  all.erase(all.begin());
  run(all, 100 * kMs, kNullPid, 2);
  LONGS_EQUAL(TsTables::kProgramsMax, report().programs);
  CHECK(tables().is_named(0x1E01));
  LONGS_EQUAL(0, faults(report()));
}

TEST(TsTables, PmtsOfTwoProgramsOnOnePid) {
  MadeProgram one = program(1, 0x100);
  MadeProgram two = program(2, 0x200);
  two.pid = 0x100;
  run({one, two}, 1000 * kMs);
  CHECK(tables().is_named(0x101) && tables().is_named(0x201));
  LONGS_EQUAL(0, faults(report()));
  // Each of the PMTs is missed by itself.
  for (uint32_t i = 0; i < 40; ++i, now += 20 * kMs) {
    pat({one, two});
    pmt(one);
  }
  LONGS_EQUAL(1, report().pmt_errors);
  run({two}, 1000 * kMs, kNullPid, 1);
  CHECK(tables().is_table(0x100) && !tables().is_named(0x101) && tables().is_named(0x201));
  LONGS_EQUAL(1, report().pmt_errors);
  LONGS_EQUAL(0, report().pid_errors + report().continuity_errors);
}

TEST(TsTables, DataAndSubtitlesMayHaveNothingToSay) {
  MadeProgram its = program(1, 0x100);
  // SCTE-35; subtitles; teletext; a carousel; metadata; audio for the visually impaired.
  its.streams.insert(its.streams.end(), {{0x86, 0x110, {0x8A, 1, 0}},
                                         {0x06, 0x111, {0x59, 8, 'e', 'n', 'g', 0x10, 0, 1, 0, 1}},
                                         {0x06, 0x112, {0x56, 5, 'e', 'n', 'g', 9, 0}},
                                         {0x0B, 0x113, {}},
                                         {0x15, 0x114, {}},
                                         {0x03, 0x115, {0x0A, 4, 'e', 'n', 'g', 3}},
                                         {0x06, 0x116, {0x6A, 1, 0}},
                                         {0x0F, 0x117, {0x0A, 4, 'e', 'n', 'g', 0}}});
  pat({its});
  pmt(its);
  for (uint16_t pid = 0x110; pid < 0x116; ++pid) CHECK(!tables().must_come(pid));
  const std::vector<uint16_t> continuous = {0x101, 0x102, 0x116, 0x117};
  for (const uint16_t pid : continuous) CHECK(tables().must_come(pid));
  CHECK(is_continuous(0x24, {}) && is_continuous(0x81, {}) && !is_continuous(0x05, {}));
  for (uint64_t i = 0; i < 300; ++i, now += 20 * kMs) {
    pat({its});
    pmt(its);
    for (const uint16_t pid : continuous) give(mux.plain(pid));
  }
  LONGS_EQUAL(0, faults(report()));
  // The PID of a clock must come all the time.
  its.clock_pid = 0x110;
  pmt(its);
  CHECK(tables().must_come(0x110));
}

TEST(TsTables, ThePaceIsThatOfTheFirstProgramThatThereIs) {
  const MadeProgram one = program(1, 0x100);
  const MadeProgram two = program(2, 0x200);
  run({two}, 200 * kMs);
  LONGS_EQUAL(0x201, inspector->pace_pid());
  run({one, two}, 200 * kMs, kNullPid, 1);
  LONGS_EQUAL(0x101, inspector->pace_pid());
  run({one, two}, 900 * kMs, 0x101, 1);
  LONGS_EQUAL(0x101, inspector->pace_pid());
  run({one, two}, 200 * kMs, 0x101, 1);  // its PCRs have stopped
  LONGS_EQUAL(0x201, inspector->pace_pid());
  CHECK(report().bits_per_second > 0);
  run({one, two}, 200 * kMs, kNullPid, 1);
  LONGS_EQUAL(0x101, inspector->pace_pid());
  run({two}, 20 * kMs, kNullPid, 2);
  LONGS_EQUAL(0x201, inspector->pace_pid());
  // Without packets, no rate is known.
  inspector->look_for_missing(now + 1100 * kMs);
  LONGS_EQUAL(0, report().bits_per_second);
}

TEST(TsTables, ClocksThatNoTableNamesMakeRoom) {
  for (uint16_t i = 0; i < 1000; ++i) {
    now += 10 * kMs;
    give(mux.plain(static_cast<uint16_t>(0x400 + i), 27'000'000));
    CHECK(inspector->clock_count() <= TsInspector::kClocksMax);
  }
  now += 10 * kMs;
  run({program(1, 0x100)}, 1200 * kMs);
  LONGS_EQUAL(1, inspector->clock_count());
  LONGS_EQUAL(0x101, inspector->pace_pid());
}

TEST(TsTables, AnotherSenderIsNobodyKnown) {
  run({program(1, 0x100), program(2, 0x200)}, 1000 * kMs);
  inspector->forget();
  CHECK(inspector->is_valid());
  LONGS_EQUAL(0, report().programs + report().bits_per_second + tables().named_count());
  LONGS_EQUAL(0, inspector->clock_count());
  for (uint16_t pid = 0x300; pid < 0x303; ++pid) mux.jump(pid, 7);
  mux.jump(kPatPid, 9);
  now += 7000 * kMs;
  run({program(1, 0x300)}, 7000 * kMs);
  LONGS_EQUAL(0, faults(report()));
  LONGS_EQUAL(0x301, inspector->pace_pid());
}

TEST(TsTables, ChanceAgainstAModelOfWhatIsOnAir) {
  Dice dice;
  TsAir<Dice> air(dice);
  uint64_t pid_errors = 0;
  for (uint32_t step = 0; step < 600; ++step) {
    for (uint32_t changes = dice.below(3); changes > 0; --changes) air.change();
    air.send(*inspector);
    air.send(*inspector);
    CHECK(inspector->is_valid());
    STRCMP_EQUAL(nullptr, air.differs(*inspector));
    if (step % 40 == 0) {
      for (const auto& [pid, must_come] : air.named()) {
        if (!must_come || air.is_clock(pid)) continue;
        air.withheld = pid;
        ++pid_errors;
        break;
      }
      for (uint32_t i = 0; i < 130; ++i) air.send(*inspector);
      air.withheld = kNullPid;
      STRCMP_EQUAL(nullptr, air.differs(*inspector));
    }
    LONGS_EQUAL(pid_errors, report().pid_errors);
    LONGS_EQUAL(air.broken_count, report().crc_errors);
    LONGS_EQUAL(pid_errors + air.broken_count, faults(report()));
  }
  CHECK(pid_errors > 5);
}
