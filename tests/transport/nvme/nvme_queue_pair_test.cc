// Queue pairs of several shards, under the control of their drive. One thread plays all shards,
// each as late as the test wants. In the last tests shards have threads of their own.
#include "transport/nvme/nvme_queue_pair_datapath.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <random>
#include <thread>
#include <vector>

#include "platform/assert.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/seed.h"
#include "tests/transport/loop/plain_sleeper.h"
#include "tests/transport/nvme/nvme_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;
using State = NvmeController::State;

TEST_GROUP(NvmeQueuePair) {
  NvmeRig rig;
  int told[FakeNvme::kQueueCountMax] = {};  // requests to follow, since the last follow()
  int asked_to_look = 0;

  void setup() override { rig.queue_count = 2; }

  // From now on a shard follows only when the test calls follow().
  void slow_down() {
    for (uint32_t i = 0; i < rig.controller.queue_count(); ++i) {
      rig.pair(i).set_calls({.follow = [](void* count) noexcept { ++*static_cast<int*>(count); },
                             .follow_context = &told[i],
                             .look = [](void* count) noexcept { ++*static_cast<int*>(count); },
                             .look_context = &asked_to_look});
    }
  }
  void follow(size_t shard) {
    told[shard] = 0;
    rig.pair(shard).follow();
  }
  bool is_enabled() {
    return (*reinterpret_cast<volatile uint32_t*>(rig.drive.registers + nvme::kConfiguration) &
            nvme::kEnable) != 0;
  }
  uint32_t doorbell(size_t number) {
    return *reinterpret_cast<volatile uint32_t*>(rig.drive.registers + nvme::kDoorbells +
                                                 number * 4);
  }
  void say_fatal() {
    *reinterpret_cast<volatile uint32_t*>(rig.drive.registers + nvme::kStatus) =
        nvme::kReady | nvme::kFatal;
  }
  void expect_served(size_t shard) {
    NvmeAsked asked;
    rig.begin(asked, NvmeAction::kRead, 0, 1, 0, shard);
    rig.turn(2);
    CHECK(asked.is_done());
    LONGS_EQUAL(0, asked.outcome);
  }
  void expect_eio(const NvmeAsked& asked) {
    LONGS_EQUAL(1, asked.done_count);
    LONGS_EQUAL(EIO, asked.outcome);
  }
  void expect_no_harm() {
    LONGS_EQUAL(0, rig.drive.trespass_count);
    LONGS_EQUAL(0, rig.drive.stray_count);
  }
};

// ---- The number of queue pairs ----

TEST(NvmeQueuePair, EachShardHasOneWithAnInterruptOfItsOwn) {
  rig.queue_count = 3;
  CHECK(rig.start());
  LONGS_EQUAL(3, rig.controller.queue_count());
  LONGS_EQUAL(3, rig.counters.queue_pairs.read());
  LONGS_EQUAL(2 | 2 << 16, rig.drive.features[nvme::kFeatureQueueCount].at(0));
  for (uint32_t i = 0; i < 3; ++i) {
    LONGS_EQUAL(i, rig.drive.interrupts[i + 1]);
    for (uint32_t n = 0; n <= i; ++n) expect_served(i);
    LONGS_EQUAL(i + 1, rig.queue_counters[i].commands.read());
    LONGS_EQUAL(1, rig.queue_counters[i].commands_peak.read());
  }
  expect_no_harm();
}

TEST(NvmeQueuePair, TheDriveMayGrantFewer) {
  rig.queue_count = 5;
  rig.drive.queue_grant = 4;
  rig.drive.completion_grant = 2;
  CHECK(rig.start());
  LONGS_EQUAL(2, rig.controller.queue_count());
  LONGS_EQUAL(2, rig.counters.queue_pairs.read());
  for (const size_t shard : {0, 1}) expect_served(shard);
  say_fatal();
  rig.turn(1);
  CHECK(rig.reaches(State::kReady));
  for (const size_t shard : {0, 1}) expect_served(shard);
  expect_no_harm();
}

TEST(NvmeQueuePair, ThereAreNoMoreThanInterrupts) {
  rig.drive.interrupt_count = 1;
  CHECK(rig.start());
  LONGS_EQUAL(1, rig.controller.queue_count());
  expect_served(0);
}

TEST(NvmeQueuePair, ThereAreNoMoreThanDoorbells) {
  rig.drive.doorbell_log2 = 7;  // 8 doorbells
  rig.queue_count = 6;
  CHECK(rig.start());
  LONGS_EQUAL(3, rig.controller.queue_count());
  for (const size_t shard : {0, 1, 2}) expect_served(shard);
}

TEST(NvmeQueuePair, ADriveThatGrantsFewerThanBeforeIsRefused) {
  CHECK(rig.start());
  rig.drive.queue_grant = 1;
  say_fatal();
  CHECK(rig.reaches(State::kFailed));
  CHECK(rig.controller.problem() == NvmeProblem::kFewerQueues);
}

// ---- Late commands ----

TEST(NvmeQueuePair, LateCommandsOfTwoShardsAreAbortedOneAfterTheOther) {
  CHECK(rig.start());
  rig.turn(10);
  rig.drive.holds_io = rig.drive.aborts = true;
  NvmeAsked asked[2];
  for (const size_t shard : {0, 1}) rig.begin(asked[shard], NvmeAction::kRead, 0, 1, 0, shard);
  rig.turn(1020);
  for (const size_t shard : {0, 1}) {
    expect_eio(asked[shard]);
    LONGS_EQUAL(1, rig.queue_counters[shard].timeouts.read());
    LONGS_EQUAL(1, rig.queue_counters[shard].errors.read());
  }
  LONGS_EQUAL(2, rig.counters.aborts.read());
  LONGS_EQUAL(0, rig.counters.resets.read());
  rig.drive.holds_io = false;
  for (const size_t shard : {0, 1}) expect_served(shard);
}

TEST(NvmeQueuePair, ACommandThatHasTheIdOfOneThatWasLateIsNotAborted) {
  CHECK(rig.start());
  rig.turn(10);
  rig.drive.holds_io = rig.drive.holds_admin = rig.drive.aborts = true;
  NvmeAsked late[2], next;
  for (const size_t shard : {0, 1}) rig.begin(late[shard], NvmeAction::kRead, 0, 1, 0, shard);
  rig.turn(1020);
  // The abort of the first command is under way. The second command ends while its own abort waits.
  LONGS_EQUAL(1, rig.queue_counters[1].timeouts.read());
  rig.drive.release_of(2);
  rig.turn(1);
  CHECK(late[1].is_done());
  rig.begin(next, NvmeAction::kRead, 0, 1, 0, 1);
  rig.turn(2);  // the drive has the command
  rig.drive.holds_admin = false;
  rig.drive.release_of(0);
  rig.turn(5);
  expect_eio(late[0]);
  CHECK(!next.is_done());
  rig.drive.holds_io = false;
  rig.drive.release_of(2);
  rig.turn(2);
  CHECK(next.is_done());
  LONGS_EQUAL(0, next.outcome);
  LONGS_EQUAL(1, rig.counters.aborts.read());
}

TEST(NvmeQueuePair, TheControlIsAskedToLookAtWhatIsLate) {
  CHECK(rig.start());
  rig.turn(10);
  slow_down();
  rig.drive.holds_io = true;
  NvmeAsked asked;
  rig.begin(asked, NvmeAction::kRead, 0, 1, 0, 1);
  rig.turn(1005);
  LONGS_EQUAL(1, asked_to_look);
  rig.turn(1005);
  CHECK(asked_to_look > 1);
  CHECK(told[0] == 1 && told[1] == 1);
  follow(0);
  follow(1);
  rig.drive.release();
  rig.turn(1);
  LONGS_EQUAL(1, asked.done_count);
}

// ---- Resets ----

TEST(NvmeQueuePair, AResetEndsWhatEveryShardHasOutstanding) {
  CHECK(rig.start());
  rig.drive.holds_io = rig.drive.stays_ready = true;
  NvmeAsked asked[2][20];  // more than there are slots
  for (const size_t shard : {0, 1}) {
    for (NvmeAsked& each : asked[shard]) rig.begin(each, NvmeAction::kRead, 0, 1, 0, shard);
  }
  rig.turn(2030);
  CHECK(rig.controller.state() == State::kDisabling);
  LONGS_EQUAL(1, rig.counters.resets.read());
  for (const size_t shard : {0, 1}) {
    LONGS_EQUAL(0, asked[shard][0].done_count);  // the drive may still write there
    expect_eio(asked[shard][19]);
  }
  rig.drive.stays_ready = false;
  CHECK(rig.reaches(State::kReady));
  rig.drive.holds_io = false;
  for (const size_t shard : {0, 1}) {
    for (const NvmeAsked& each : asked[shard]) expect_eio(each);
    expect_served(shard);
  }
  LONGS_EQUAL(2, rig.drive.start_count);
  expect_no_harm();
}

TEST(NvmeQueuePair, AResetWaitsUntilNoShardSubmits) {
  CHECK(rig.start());
  slow_down();
  say_fatal();
  rig.turn(1);
  CHECK(told[0] == 1 && told[1] == 1);
  follow(0);
  NvmeAsked refused;
  rig.begin(refused, NvmeAction::kRead, 0, 1, 0, 0);
  rig.drive.holds_io = true;
  NvmeAsked late;  // of a shard that has not followed yet
  rig.begin(late, NvmeAction::kRead, 0, 1, 0, 1);
  rig.turn(5000);
  expect_eio(refused);
  CHECK(is_enabled() && late.done_count == 0);
  follow(1);
  rig.turn(5);
  CHECK(!is_enabled());
  // The drive has stopped. Only now does each shard end its operations.
  CHECK(told[0] == 1 && told[1] == 1);
  LONGS_EQUAL(0, late.done_count);
  follow(0);
  rig.turn(5000);
  CHECK(!is_enabled());
  follow(1);
  expect_eio(late);
  CHECK(rig.reaches(State::kReady));
  // A shard serves again once it has followed.
  NvmeAsked early;
  rig.begin(early, NvmeAction::kRead, 0, 1, 0, 1);
  rig.turn(1);
  expect_eio(early);
  rig.drive.holds_io = false;
  follow(1);
  expect_served(1);
  follow(0);
  expect_served(0);
  expect_no_harm();
}

// Once a pair has closed, the controller may be disabled at any time.
TEST(NvmeQueuePair, OneThatIsClosedWritesNoRegister) {
  CHECK(rig.start());
  slow_down();
  NvmeAsked asked;
  rig.begin(asked, NvmeAction::kRead, 0, 1);  // the shard has not rung the doorbell yet
  LONGS_EQUAL(0, doorbell(2));
  say_fatal();
  rig.controller.look(rig.now_ns);
  LONGS_EQUAL(1, told[0]);
  follow(0);
  LONGS_EQUAL(1, doorbell(2));
  rig.drive.step();
  rig.poll();
  LONGS_EQUAL(1, asked.done_count);
  LONGS_EQUAL(0, asked.outcome);
  LONGS_EQUAL(1, doorbell(2));
  LONGS_EQUAL(0, doorbell(3));
  follow(1);
  for (int i = 0; i < 100; ++i) {
    rig.turn(1);
    for (const size_t shard : {0, 1}) follow(shard);
  }
  for (const size_t shard : {0, 1}) expect_served(shard);
  expect_no_harm();
}

// A pair that has not followed to kOpen must still follow to kEnded again: its earlier answer does
// not count.
TEST(NvmeQueuePair, AnAnswerToAnEarlierWishCountsNoMore) {
  CHECK(rig.start());
  slow_down();
  NvmeQueuePair& pair = rig.pair(1);
  pair.want(NvmeQueuePair::Phase::kEnded);
  CHECK(!pair.has_followed());
  pair.follow();
  CHECK(pair.has_followed());
  pair.want(NvmeQueuePair::Phase::kOpen);
  pair.want(NvmeQueuePair::Phase::kEnded);
  CHECK(!pair.has_followed());
  pair.follow();
  CHECK(pair.has_followed() && !pair.io().is_open());
}

// ---- Ends ----

TEST(NvmeQueuePair, OneThatVanishesIsLetGoOfOnceNoShardUsesIt) {
  CHECK(rig.start());
  slow_down();
  rig.drive.holds_io = true;
  NvmeAsked asked[2];
  for (const size_t shard : {0, 1}) rig.begin(asked[shard], NvmeAction::kWrite, 0, 1, 0, shard);
  rig.turn(1);
  rig.controller.give_up(NvmeProblem::kTakenBack);
  CHECK(!rig.controller.is_let_go_of() && !rig.drive.may_use_memory);
  follow(0);
  expect_eio(asked[0]);
  LONGS_EQUAL(0, asked[1].done_count);
  CHECK(!rig.controller.is_let_go_of());
  CHECK(rig.controller.look(rig.now_ns) != NvmeController::kNever);
  follow(1);
  expect_eio(asked[1]);
  CHECK(rig.controller.is_let_go_of());
  LONGS_EQUAL(NvmeController::kNever, rig.controller.look(rig.now_ns));
  volatile std::byte* const registers = rig.drive.registers;
  std::memset(const_cast<std::byte*>(registers), 0, FakeNvme::kRegistersBytes);
  for (const size_t shard : {0, 1}) rig.begin(asked[shard], NvmeAction::kFlush, 0, 1, 0, shard);
  rig.poll();
  for (const NvmeAsked& each : asked) LONGS_EQUAL(2, each.done_count);
  CHECK(std::all_of(registers, registers + FakeNvme::kRegistersBytes,
                    [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST(NvmeQueuePair, AShutdownWaitsUntilNoShardSubmits) {
  CHECK(rig.start());
  slow_down();
  rig.controller.shut_down(rig.now_ns);
  follow(0);
  rig.turn(5000);
  CHECK(!rig.drive.was_shut_down);
  expect_served(1);
  follow(1);
  rig.turn(5);
  CHECK(rig.drive.was_shut_down && !rig.controller.is_let_go_of());
  follow(0);
  follow(1);
  CHECK(rig.controller.is_let_go_of());
  expect_no_harm();
}

// ---- Any order ----

// Shards, control and drive take turns at random, and the drive fails at random. Every operation
// ends once, the drive writes into no memory that was returned, and no doorbell rings for a queue
// that does not exist.
TEST(NvmeQueuePair, AnyOrderOfShardsControlAndFailures) {
  const Seed seed;
  std::mt19937_64 random(seed.value());
  constexpr size_t kShards = 3;
  constexpr size_t kEach = 12;
  rig.queue_count = kShards;
  CHECK(rig.start());
  slow_down();
  struct Own {
    NvmeAsked asked;
    int begun_count = 0;
    bool is_busy() const { return begun_count != asked.done_count; }
  };
  std::vector<std::vector<Own>> own(kShards);
  for (auto& of_shard : own) of_shard = std::vector<Own>(kEach);
  uint64_t served = 0;
  uint64_t failed = 0;
  const auto act = [&](size_t shard) {
    switch (random() % 4) {
      case 0: follow(shard); break;
      case 1: rig.pair(shard).poll(1 + random() % 8, rig.now_ns); break;
      case 2: rig.pair(shard).look(rig.now_ns); break;
      default: {
        const size_t index = random() % kEach;
        Own& each = own[shard][index];
        if (each.is_busy()) {
          CHECK_TEXT(each.begun_count == each.asked.done_count + 1, seed.text());
          break;
        }
        if (each.begun_count > 0) ++(each.asked.outcome == 0 ? served : failed);
        ++each.begun_count;
        const auto action = random() % 2 == 0 ? NvmeAction::kRead : NvmeAction::kWrite;
        rig.begin(each.asked, action, random() % 1000, 1 + random() % 32,
                  (shard * kEach + index) * 65536, shard);
      }
    }
  };
  for (int turn = 0; turn < 60'000; ++turn) {
    rig.now_ns += random() % kNsPerMs;
    const uint64_t what = random() % 16;
    if (what < 10) act(random() % kShards);
    else if (what < 13) rig.drive.step();
    else rig.controller.look(rig.now_ns);
    if (random() % 200 == 0) rig.drive.release();
    if (random() % 500 == 0) rig.drive.holds_io = random() % 4 == 0;
    if (random() % 500 == 0) rig.drive.aborts = random() % 2 == 0;
    if (random() % 900 == 0) rig.drive.stays_ready = random() % 2 == 0;
    if (random() % 3000 == 0 && rig.controller.state() == State::kReady) say_fatal();
    for (size_t i = 0; i < kShards; ++i) {
      CHECK_TEXT(rig.pair(i).io().is_valid() && rig.pair(i).queue().is_valid(), seed.text());
    }
  }
  // The drive is well again: all operations end, and all shards serve.
  rig.drive.holds_io = rig.drive.stays_ready = false;
  for (int turn = 0; turn < 10'000; ++turn) {
    rig.round();
    rig.drive.release();
    for (size_t i = 0; i < kShards; ++i) follow(i);
  }
  CHECK_TEXT(rig.controller.state() == State::kReady, seed.text());
  for (const auto& of_shard : own) {
    for (const Own& each : of_shard) CHECK_TEXT(!each.is_busy(), seed.text());
  }
  for (size_t i = 0; i < kShards; ++i) expect_served(i);
  CHECK_TEXT(served > 100 && failed > 10 && rig.counters.resets.read() > 0, seed.text());
  LONGS_EQUAL_TEXT(0, rig.drive.stray_count, seed.text());
}

// ---- On threads ----

namespace {

// A shard on a thread of its own, which also plays its queue of the drive. So it shares with the
// control only the pair's words, and the data that they guard.
struct ThreadedShard {
  static constexpr uint32_t kEntries = 8;

  NvmeQueueCounters counters;
  NvmeQueuePair pair;
  NvmeNamespace space = {.id = 1, .block_log2 = 9, .transfer_blocks_max = 8};
  std::vector<std::byte*> taken;
  std::byte* registers = take(FakeNvme::kRegistersBytes);
  std::byte* data = take(4096);
  const uint64_t* epoch = nullptr;  // the control's; not atomic: the pair's words guard it
  std::atomic<bool> is_told = false;
  std::atomic<bool> must_end = false;
  std::atomic<uint64_t> served_count = 0;  // this and the rest: written by the shard
  uint64_t failed_count = 0;
  uint64_t wrong_count = 0;

  ThreadedShard() {
    const uint64_t bytes = NvmeQueuePair::bytes_for(kEntries);
    pair.create({.entry_count = kEntries, .timeout_ns = kNsPerSecond}, {take(bytes), bytes},
                registers, counters);
    pair.set_calls(
        {.follow = [](void* flag) noexcept { static_cast<std::atomic<bool>*>(flag)->store(true); },
         .follow_context = &is_told});
  }
  ThreadedShard(const ThreadedShard&) = delete;
  ThreadedShard& operator=(const ThreadedShard&) = delete;
  ~ThreadedShard() {
    for (std::byte* each : taken) std::free(each);
  }
  std::byte* take(size_t bytes) {
    taken.push_back(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
    std::memset(taken.back(), 0, bytes);
    return taken.back();
  }

  void run() {
    std::vector<NvmeAsked> asked(kEntries);
    std::vector<bool> is_busy(kEntries);
    uint32_t head = 0;  // the drive's
    uint32_t tail = 0;
    uint16_t phase = 1;
    volatile uint32_t& doorbell =
        *reinterpret_cast<volatile uint32_t*>(registers + nvme::kDoorbells + 8);
    for (uint64_t turn = 0; !must_end; ++turn) {
      std::this_thread::yield();  // there may be only one processor
      if (is_told.exchange(false)) pair.follow();
      const NvmeQueue& queue = pair.queue();
      if (pair.io().is_open()) {
        wrong_count += *epoch % 2 != 1;
        for (uint32_t i = 0; i < kEntries; ++i) {
          if (is_busy[i]) continue;
          asked[i].space = &space;
          asked[i].memory = data;
          asked[i].block_count = 1;
          pair.io().begin(asked[i], turn);
          is_busy[i] = true;
        }
      } else if (queue.outstanding() == 0) {
        head = tail = 0;
        phase = 1;
        doorbell = 0;
      }
      // The drive's part. It leaves some commands for later turns.
      for (uint64_t left = turn % 4; left > 0 && head != doorbell; --left) {
        const auto* commands = reinterpret_cast<const nvme::Command*>(queue.submissions());
        auto* completions =
            reinterpret_cast<nvme::Completion*>(const_cast<std::byte*>(queue.completions()));
        completions[tail].command_id = commands[head].id;
        completions[tail].status = phase;
        head = (head + 1) % kEntries;
        tail = (tail + 1) % kEntries;
        if (tail == 0) phase ^= 1;
      }
      pair.poll(64, turn);
      for (uint32_t i = 0; i < kEntries; ++i) {
        if (!is_busy[i] || asked[i].done_count == 0) continue;
        wrong_count += asked[i].done_count != 1;
        if (asked[i].outcome == 0) served_count.fetch_add(1, std::memory_order_relaxed);
        else ++failed_count;
        asked[i].done_count = 0;
        is_busy[i] = false;
      }
    }
    wrong_count += pair.has_outstanding() || std::count(is_busy.begin(), is_busy.end(), true) != 0;
  }
};

}  // namespace

// For the thread sanitizer: between two phases the control writes `epoch`, which no shard reads
// then.
TEST(NvmeQueuePair, ControlAndShardsOnThreadsOfTheirOwn) {
  using Phase = NvmeQueuePair::Phase;
  constexpr size_t kShards = 2;
  uint64_t epoch = 0;  // odd: the controller is enabled
  ThreadedShard shards[kShards];
  std::vector<std::thread> threads;
  for (ThreadedShard& shard : shards) {
    shard.epoch = &epoch;
    threads.emplace_back([&shard] { shard.run(); });
  }
  const auto have_all = [&](Phase phase) {
    for (ThreadedShard& shard : shards) shard.pair.want(phase);
    return eventually([&] {
      return std::all_of(shards, shards + kShards,
                         [](const ThreadedShard& shard) { return shard.pair.has_followed(); });
    });
  };
  uint64_t stale_count = 0;
  bool is_followed = true;
  for (int round = 0; round < 50 && is_followed; ++round) {
    ++epoch;
    uint64_t before[kShards];
    for (size_t i = 0; i < kShards; ++i) before[i] = shards[i].served_count;
    is_followed = have_all(Phase::kOpen) && eventually([&] {
                    return shards[0].served_count > before[0] && shards[1].served_count > before[1];
                  });
    is_followed = is_followed && have_all(Phase::kClosed);
    ++epoch;
    is_followed = is_followed && have_all(Phase::kEnded);
    for (ThreadedShard& shard : shards) {
      stale_count += is_followed && shard.pair.queue().outstanding() != 0;
    }
  }
  for (ThreadedShard& shard : shards) shard.must_end = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(is_followed);
  LONGS_EQUAL(0, stale_count);
  for (const ThreadedShard& shard : shards) {
    LONGS_EQUAL(0, shard.wrong_count);
    CHECK(shard.failed_count > 0);
    LONGS_EQUAL(0, shard.counters.bad_completions.read());
  }
}

// ---- Threads ----

#if BP_DEBUG
// One loop is the control and the shard, and runs on another thread.
TEST(NvmeQueuePair, EachPartIsForItsThreadAlone) {
  CHECK(rig.start());
  EventLoop loop;
  CHECK(loop.create({}).ok());
  PlainSleeper sleeper(loop);
  loop.set_sleeper(sleeper);
  NvmeQueuePair& pair = rig.pair();
  pair.set_calls({.control = &loop, .shard = &loop});
  std::thread other([&] { loop.run(); });
  CHECK(eventually([&] { return !loop.is_own_thread(); }));
  BP_CHECK_DIES("is_controls_thread()", pair.want(NvmeQueuePair::Phase::kClosed));
  BP_CHECK_DIES("is_controls_thread()", (void)pair.has_followed());
  BP_CHECK_DIES("is_controls_thread()", (void)pair.take_late());
  BP_CHECK_DIES("is_controls_thread()", (void)pair.is_stuck());
  BP_CHECK_DIES("is_shards_thread()", (void)pair.io());
  BP_CHECK_DIES("is_shards_thread()", (void)pair.has_outstanding());
  BP_CHECK_DIES("is_shards_thread()", pair.poll(1, rig.now_ns));
  BP_CHECK_DIES("is_shards_thread()", pair.follow());
  BP_CHECK_DIES("is_shards_thread()", pair.look(rig.now_ns));
  loop.stop();
  other.join();
  expect_served(0);
}
#endif
