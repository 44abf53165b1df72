// Starts, refusals, late answers and resets of a controller, with a simulated clock.
#include "transport/nvme/nvme_controller.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "platform/assert.h"
#include "tests/support/death_test.h"
#include "tests/transport/nvme/nvme_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;
using State = NvmeController::State;

TEST_GROUP(NvmeController) {
  NvmeRig rig;

  void expect_problem(NvmeProblem problem, uint32_t detail = 0) {
    rig.create();
    CHECK(rig.reaches(State::kFailed, 3000));
    LONGS_EQUAL(static_cast<int>(problem), static_cast<int>(rig.controller.problem()));
    LONGS_EQUAL(detail, rig.controller.problem_detail());
    CHECK_FALSE(rig.drive.may_use_memory);
    const Error error = error_of(problem, detail, "0000:01:00.0");
    CHECK(std::strstr(error.doing, "0000:01:00.0") != nullptr && error.cure[0] != 0);
  }
  // A new operation ends with EIO, without an answer of the controller.
  void expect_eio() {
    NvmeAsked asked;
    rig.begin(asked, NvmeAction::kRead, 0, 1);
    rig.turn(1);
    CHECK(asked.is_done());
    LONGS_EQUAL(EIO, asked.outcome);
  }
  void expect_served() {
    NvmeAsked asked;
    rig.begin(asked, NvmeAction::kRead, 0, 1);
    rig.turn(2);
    CHECK(asked.is_done());
    LONGS_EQUAL(0, asked.outcome);
  }
};

// ---- Starts ----

TEST(NvmeController, StartsAndKnowsItsNamespaces) {
  rig.drive.spaces = {{2048, 9, 0}, {999, 12, 0}};
  rig.options.namespaces = {2, 1};
  CHECK(rig.start());
  LONGS_EQUAL(2, rig.controller.space(0).id);
  LONGS_EQUAL(999, rig.controller.space(0).block_count.load());
  LONGS_EQUAL(12, rig.controller.space(0).block_log2);
  LONGS_EQUAL(2048, rig.controller.space(1).block_count.load());
  LONGS_EQUAL(0, rig.drive.features[nvme::kFeatureQueueCount].at(0));  // one queue of each kind
  CHECK(rig.drive.features[nvme::kFeatureWriteCache].empty());
  LONGS_EQUAL(static_cast<int>(State::kReady), rig.counters.state.read());
}

TEST(NvmeController, AnyDistanceOfDoorbellsAndFewerEntriesThanAsked) {
  rig.drive.doorbell_log2 = 4;
  rig.drive.entry_count_max = 5;
  rig.options.queue_entries = 64;
  CHECK(rig.start());
  LONGS_EQUAL(5, rig.pair().io().queue().entry_count());
  for (int i = 0; i < 20; ++i) expect_served();
}

TEST(NvmeController, TurnsTheWriteCacheOnAndOff) {
  rig.options.has_write_cache = false;
  CHECK(rig.start());
  LONGS_EQUAL(0, rig.drive.features[nvme::kFeatureWriteCache].at(0));
  NvmeRig other;
  other.options.has_write_cache = true;
  CHECK(other.start());
  LONGS_EQUAL(1, other.drive.features[nvme::kFeatureWriteCache].at(0));
}

TEST(NvmeController, WithoutACacheThereIsNoneToTurnOff) {
  rig.drive.has_cache = false;
  rig.options.has_write_cache = false;
  CHECK(rig.start());
  CHECK(rig.drive.features[nvme::kFeatureWriteCache].empty());
}

TEST(NvmeController, OnlyIdentifiedItHasNoQueue) {
  rig.options.is_only_identified = true;
  CHECK(rig.start());
  CHECK(rig.drive.features[nvme::kFeatureQueueCount].empty());
  expect_eio();
}

TEST(NvmeController, LooksAtTheHealthOnceAMinuteAndWhetherItHasGrown) {
  CHECK(rig.start());
  rig.turn(10);
  LONGS_EQUAL(300, rig.counters.temperature_kelvin.read());
  LONGS_EQUAL(93, rig.counters.spare_percent.read());
  LONGS_EQUAL(7, rig.counters.media_errors.read());
  const size_t before = rig.drive.admin_commands.size();
  rig.turn(1000);
  LONGS_EQUAL(before, rig.drive.admin_commands.size());
  rig.drive.spaces[0].block_count = 4096;
  rig.now_ns += NvmeController::kHealthIntervalNs;
  rig.turn(10);
  LONGS_EQUAL(4096, rig.controller.space(0).block_count.load());
}

// Errors from before the first log are left out; otherwise each start would look like a loss of
// data.
TEST(NvmeController, CountsTheMediaErrorsSinceItHasLookedFirst) {
  CHECK(rig.start());
  rig.turn(10);
  LONGS_EQUAL(7, rig.counters.media_errors.read());
  LONGS_EQUAL(0, rig.counters.new_media_errors.read());
  rig.drive.media_errors = 9;
  rig.now_ns += NvmeController::kHealthIntervalNs;
  rig.turn(10);
  LONGS_EQUAL(9, rig.counters.media_errors.read());
  LONGS_EQUAL(2, rig.counters.new_media_errors.read());
  rig.drive.media_errors = 3;  // the log's count went back
  rig.now_ns += NvmeController::kHealthIntervalNs;
  rig.turn(10);
  LONGS_EQUAL(2, rig.counters.new_media_errors.read());
}

TEST(NvmeController, ShutsDown) {
  CHECK(rig.start());
  rig.controller.shut_down(rig.now_ns);
  CHECK(rig.reaches(State::kClosed));
  CHECK(rig.drive.was_shut_down && !rig.drive.may_use_memory);
  expect_eio();
}

// ---- Refusals ----

TEST(NvmeController, OneThatIsNotThere) {
  rig.create();
  rig.drive.vanish();
  rig.turn(1);
  CHECK(rig.controller.state() == State::kFailed);
  CHECK(rig.controller.problem() == NvmeProblem::kGone);
}

TEST(NvmeController, OneWithOtherCommands) {
  rig.drive.has_nvm = false;
  expect_problem(NvmeProblem::kNotNvm);
}

TEST(NvmeController, OneWithLargePagesAlone) {
  rig.drive.page_log2_min = 13;
  expect_problem(NvmeProblem::kPageBytes);
}

TEST(NvmeController, OneWithQueuesThatAreTooShort) {
  rig.drive.entry_count_max = 2;
  expect_problem(NvmeProblem::kNoQueue);
  STRCMP_EQUAL("it has no I/O queue, doorbell or interrupt, or too short queues",
               error_of(NvmeProblem::kNoQueue, 0, "0000:01:00.0").answer);
}

TEST(NvmeController, OneThatIsUnsuitableIsNotTriedAgain) {
  rig.drive.has_nvm = false;
  expect_problem(NvmeProblem::kNotNvm);
  rig.now_ns += rig.options.timeout_ns;
  CHECK(rig.controller.look(rig.now_ns) == NvmeController::kNever);
  CHECK(rig.controller.state() == State::kFailed && !rig.drive.may_use_memory);
}

TEST(NvmeController, OneThatDoesNotBecomeReady) {
  rig.drive.is_never_ready = true;
  expect_problem(NvmeProblem::kNotReady);
}

TEST(NvmeController, OneThatDoesNotAnswer) {
  rig.drive.holds_admin = true;
  expect_problem(NvmeProblem::kSilent);
}

TEST(NvmeController, OneThatRefusesAQueue) {
  rig.drive.refused_opcode = nvme::kCreateSubmission;
  rig.drive.admin_status = 0x101;
  expect_problem(NvmeProblem::kRefused, 0x101);
}

TEST(NvmeController, ANamespaceThatIsNotThere) {
  rig.options.namespaces = {1, 3};
  expect_problem(NvmeProblem::kMissingNamespace, 3);
}

TEST(NvmeController, ANamespaceThatIsNotActive) {
  rig.drive.spaces.push_back({0, 0, 0});
  rig.options.namespaces = {2};
  expect_problem(NvmeProblem::kMissingNamespace, 2);
}

TEST(NvmeController, AFormatWithMetadata) {
  rig.drive.spaces[0].metadata_bytes = 8;
  expect_problem(NvmeProblem::kMetadata, 1);
}

TEST(NvmeController, BlocksThatAreTooLong) {
  rig.drive.spaces[0].block_log2 = 16;
  expect_problem(NvmeProblem::kBlockBytes, 1);
}

TEST(NvmeController, NoCacheToTurnOn) {
  rig.drive.has_cache = false;
  rig.options.has_write_cache = true;
  expect_problem(NvmeProblem::kNoWriteCache);
}

// ---- Later failures ----

TEST(NvmeController, WhatIsLateIsAborted) {
  CHECK(rig.start());
  rig.drive.holds_io = rig.drive.aborts = true;
  NvmeAsked asked;
  rig.begin(asked, NvmeAction::kRead, 0, 1);
  rig.turn(999);
  LONGS_EQUAL(0, asked.done_count);
  LONGS_EQUAL(0, rig.queue_counters[0].timeouts.read());
  rig.turn(5);
  CHECK(asked.is_done());
  LONGS_EQUAL(EIO, asked.outcome);
  LONGS_EQUAL(1, rig.queue_counters[0].timeouts.read());
  LONGS_EQUAL(1, rig.counters.aborts.read());
  LONGS_EQUAL(0, rig.counters.resets.read());
  rig.drive.holds_io = false;
  expect_served();
}

TEST(NvmeController, WhatIsLateAndCannotBeAbortedMeansAReset) {
  CHECK(rig.start());
  rig.drive.holds_io = true;
  rig.drive.stays_ready = true;
  NvmeAsked asked[20];  // more than there are slots
  for (NvmeAsked& each : asked) rig.begin(each, NvmeAction::kRead, 0, 1);
  rig.turn(1500);
  LONGS_EQUAL(0, asked[0].done_count);
  LONGS_EQUAL(0, rig.counters.resets.read());
  rig.turn(520);
  LONGS_EQUAL(1, rig.counters.resets.read());
  CHECK(rig.controller.state() == State::kDisabling);
  // An operation does not end while the controller may still write to its memory.
  LONGS_EQUAL(0, asked[0].done_count);
  CHECK(asked[19].is_done());
  expect_eio();
  rig.drive.stays_ready = false;
  CHECK(rig.reaches(State::kReady));
  for (const NvmeAsked& each : asked) {
    CHECK(each.is_done());
    LONGS_EQUAL(EIO, each.outcome);
  }
  rig.drive.holds_io = false;
  expect_served();
  LONGS_EQUAL(2, rig.drive.start_count);
  LONGS_EQUAL(0, rig.drive.trespass_count);
  LONGS_EQUAL(static_cast<int>(NvmeProblem::kLate), rig.counters.problem.read());
}

TEST(NvmeController, AnAnswerDuringTheResetCountsNoMore) {
  CHECK(rig.start());
  rig.drive.holds_io = rig.drive.stays_ready = true;
  NvmeAsked asked;
  rig.begin(asked, NvmeAction::kRead, 0, 1);
  rig.turn(2010);
  CHECK(rig.controller.state() == State::kDisabling);
  rig.drive.release();
  rig.drive.stays_ready = false;
  CHECK(rig.reaches(State::kReady));
  CHECK(asked.is_done());
  rig.drive.holds_io = false;
  expect_served();
  LONGS_EQUAL(0, rig.counters.bad_completions.read());
}

TEST(NvmeController, OneThatCannotBeResetIsKeptFromMemoryAndTriedAgain) {
  CHECK(rig.start());
  rig.drive.holds_io = rig.drive.stays_ready = true;
  NvmeAsked asked;
  rig.begin(asked, NvmeAction::kRead, 0, 1);
  CHECK(rig.reaches(State::kFailed, 5000));
  CHECK(asked.is_done() && !rig.drive.may_use_memory);
  LONGS_EQUAL(EIO, asked.outcome);
  expect_eio();
  rig.drive.release();  // its DMA is refused, because the memory is no longer its own
  LONGS_EQUAL(1, rig.drive.trespass_count);
  rig.drive.stays_ready = rig.drive.holds_io = false;
  CHECK(rig.reaches(State::kReady, 3000));
  expect_served();
  LONGS_EQUAL(1, rig.drive.trespass_count);
}

TEST(NvmeController, OneThatVanishesAnswersEio) {
  CHECK(rig.start());
  rig.drive.holds_io = true;
  NvmeAsked asked;
  rig.begin(asked, NvmeAction::kWrite, 0, 1);
  rig.turn(1);
  rig.drive.vanish();
  rig.turn(2);
  CHECK(asked.is_done());
  LONGS_EQUAL(EIO, asked.outcome);
  CHECK(rig.controller.state() == State::kFailed);
  CHECK(rig.controller.problem() == NvmeProblem::kGone);
  rig.turn(5000);
  expect_eio();
}

TEST(NvmeController, OneThatSaysThatItHasFailedIsReset) {
  CHECK(rig.start());
  *reinterpret_cast<volatile uint32_t*>(rig.drive.registers + nvme::kStatus) =
      nvme::kReady | nvme::kFatal;
  rig.turn(1);
  CHECK(rig.controller.state() != State::kReady);
  CHECK(rig.reaches(State::kReady));
  LONGS_EQUAL(1, rig.counters.resets.read());
  expect_served();
}

TEST(NvmeController, ASilentHealthLogMeansAReset) {
  CHECK(rig.start());
  rig.drive.holds_admin = true;
  rig.turn(1010);
  LONGS_EQUAL(1, rig.counters.resets.read());
  rig.drive.holds_admin = false;
  CHECK(rig.reaches(State::kReady, 3000));
}

TEST(NvmeController, OneThatComesBackSmallerIsRefused) {
  CHECK(rig.start());
  rig.drive.spaces[0].block_count = 100;
  *reinterpret_cast<volatile uint32_t*>(rig.drive.registers + nvme::kStatus) =
      nvme::kReady | nvme::kFatal;
  CHECK(rig.reaches(State::kFailed));
  CHECK(rig.controller.problem() == NvmeProblem::kOtherFormat);
  LONGS_EQUAL(2048, rig.controller.space(0).block_count.load());
}

// Shards split their transfers by the limit of the first start.
TEST(NvmeController, OneThatComesBackWithSmallerTransfersIsRefused) {
  CHECK(rig.start());
  rig.drive.transfer_log2 = 1;
  *reinterpret_cast<volatile uint32_t*>(rig.drive.registers + nvme::kStatus) =
      nvme::kReady | nvme::kFatal;
  CHECK(rig.reaches(State::kFailed));
  CHECK(rig.controller.problem() == NvmeProblem::kOtherFormat);
}

TEST(NvmeController, GivenUpItTouchesNothingAnyMore) {
  CHECK(rig.start());
  rig.drive.holds_io = true;
  NvmeAsked asked;
  rig.begin(asked, NvmeAction::kRead, 0, 1);
  rig.turn(1);
  rig.controller.give_up(NvmeProblem::kTakenBack);
  CHECK(asked.is_done());
  LONGS_EQUAL(EIO, asked.outcome);
  volatile std::byte* const registers = rig.drive.registers;
  rig.drive.registers = nullptr;  // as if they were unmapped
  LONGS_EQUAL(NvmeController::kNever, rig.controller.look(rig.now_ns));
  rig.poll(64);
  rig.controller.shut_down(rig.now_ns);
  rig.drive.registers = registers;
}

#if BP_DEBUG
TEST(NvmeController, WhatIsClosedIsNotGivenUpOnceMore) {
  CHECK(rig.start());
  rig.controller.give_up(NvmeProblem::kTakenBack);
  CHECK(rig.controller.is_valid());
  BP_CHECK_DIES("state_ != State::kClosed", rig.controller.give_up(NvmeProblem::kTakenBack));
}

TEST(NvmeController, WhatItShowsIsItsState) {
  CHECK(rig.start());
  CHECK(rig.controller.is_valid());
  rig.counters.state.set(static_cast<uint64_t>(State::kFailed));
  CHECK(!rig.controller.is_valid());
  BP_CHECK_DIES("is_valid() before a change", rig.controller.look(rig.now_ns));
  rig.counters.state.set(static_cast<uint64_t>(State::kReady));
}
#endif
