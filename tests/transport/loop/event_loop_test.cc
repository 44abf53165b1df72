// The event loop: order, budgets, timers and sleeping.
#include "transport/loop/event_loop.h"

#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "platform/clock.h"
#include "tests/support/death_test.h"
#include "tests/transport/loop/event_loop_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

void stop_after_two_rounds(Scripted& self) noexcept {
  if (++self.rounds == 2) self.loop->stop();
}

}  // namespace

TEST_GROUP_BASE(EventLoop, EventLoopFixture){};

TEST(EventLoop, PollsItsSourcesInTheOrderInWhichTheyWereAdded) {
  make(kNsPerSecond);
  loop.add_source(b, 1);
  loop.add_source(a, 1);
  loop.add_source(c, 1);
  c.on_poll = &stop_after_two_rounds;
  loop.run();
  STRCMP_EQUAL("bacbac", journal.c_str());
  CHECK_EQUAL(2, counters.iterations.read());
}

TEST(EventLoop, ATestDrivesItRoundByRoundWithAClockOfItsOwn) {
  uint64_t clock_ns = 5 * kNsPerSecond;
  CHECK(loop.create({.counters = &counters, .test_clock_ns = &clock_ns}).ok());
  loop.add_source(a, 1);
  loop.timers().reserve_more(1);
  uint32_t expired_count = 0;
  Timer timer = {.expired = [](void* context) noexcept { ++*static_cast<uint32_t*>(context); },
                 .context = &expired_count};
  loop.timers().arm(timer, clock_ns + 10);
  LONGS_EQUAL(0, loop.run_round());
  clock_ns += 9;
  LONGS_EQUAL(0, loop.run_round());
  CHECK_EQUAL(clock_ns, loop.now_ns());
  ++clock_ns;
  LONGS_EQUAL(1, loop.run_round());
  LONGS_EQUAL(1, expired_count);
  a.work = 3;
  LONGS_EQUAL(3, loop.run_round());
  ++clock_ns;
  CHECK_EQUAL(clock_ns, loop.look_at_clock());
  STRCMP_EQUAL("aaaaaa", journal.c_str());  // an idle round looks twice
  CHECK_EQUAL(10, counters.spin_ns.read() + counters.busy_ns.read());
}

// The loop measures every sixteenth round with work. In that round it measures only the sources
// that had work.
TEST(EventLoop, MeasuresEverySixteenthRoundWithWork) {
  make(kNsPerSecond);
  SourceCounters busy;
  SourceCounters idle;
  loop.add_source(a, 1, "a", &busy);
  loop.add_source(b, 1, "b", &idle);
  loop.add_source(c, 1);  // has no counters of its own
  a.on_poll = c.on_poll = [](Scripted& self) noexcept {
    // Every other round has no work. After such a round the loop reads its clock, so the time is
    // fresh before each measured round.
    self.work = self.rounds++ % 2;
    const uint64_t until_ns = monotonic_ns() + 20 * kNsPerUs * self.work;
    while (monotonic_ns() < until_ns) cpu_relax();
    if (self.rounds == 2 * 16 * 40) self.loop->stop();
  };
  loop.run();
  CHECK_EQUAL(40, busy.round.count());
  CHECK_EQUAL(0, idle.round.count());
  CHECK_EQUAL(40, counters.round.count());
  CHECK(busy.round.percentile(0.01) >= 20 * kNsPerUs);
  CHECK(counters.round.percentile(0.01) >= 40 * kNsPerUs);
}

TEST(EventLoop, IdleRoundsAreNotMeasured) {
  make(kNsPerSecond);
  SourceCounters its_counters;
  loop.add_source(a, 1, "a", &its_counters);
  a.on_poll = [](Scripted& self) noexcept {
    if (++self.rounds == 100) self.loop->stop();
  };
  loop.run();
  CHECK_EQUAL(0, its_counters.round.count() + counters.round.count());
}

// Three phases of 20 ms or more: busy, spinning and asleep.
TEST(EventLoop, TellsHowItSpentItsTime) {
  constexpr uint64_t kPhaseNs = 20 * kNsPerMs;
  struct BusyOnce final : PollSource {
    uint32_t poll(uint32_t) noexcept override {
      if (std::exchange(was_busy, true)) return 0;
      const uint64_t until_ns = monotonic_ns() + kPhaseNs;
      while (monotonic_ns() < until_ns) cpu_relax();
      return 1;
    }
    bool was_busy = false;
  } busy_once;
  struct Slow final : Sleeper {
    Slow(EventLoop& the_loop, EventLoopCounters& its_counters) noexcept
        : its_loop(the_loop), counters(its_counters) {}
    void sleep_until(uint64_t) noexcept override {
      was_asleep = counters.is_asleep.read() == 1;
      const timespec time = {0, kPhaseNs};
      nanosleep(&time, nullptr);
      its_loop.stop();
    }
    EventLoop& its_loop;
    EventLoopCounters& counters;
    bool was_asleep = false;
  } slow{loop, counters};
  make(kPhaseNs, slow);
  loop.add_source(busy_once, 1);
  const uint64_t begin_ns = monotonic_ns();
  loop.run();
  const uint64_t took_ns = monotonic_ns() - begin_ns;
  CHECK(counters.busy_ns.read() >= kPhaseNs);
  CHECK(counters.spin_ns.read() >= kPhaseNs);
  // The check requires only half of the sleep, because the thread needs time to fall asleep.
  CHECK(counters.busy_ns.read() + counters.spin_ns.read() + kPhaseNs / 2 <= took_ns);
  CHECK(slow.was_asleep);
  CHECK_EQUAL(0, counters.is_asleep.read());
}

// io_uring also copies data in the system call in which it waits. The copying is work, not sleep.
// This sleeper works in the same way: it uses the processor while the loop calls it asleep.
TEST(EventLoop, WhatTheThreadWorksWhileItSleepsIsCounted) {
  struct Working final : Sleeper {
    explicit Working(EventLoop& the_loop) noexcept : its_loop(the_loop) {}
    void sleep_until(uint64_t) noexcept override {
      const uint64_t begin_ns = monotonic_ns();
      const uint64_t until_ns = thread_cpu_ns() + kNsPerMs;
      while (thread_cpu_ns() < until_ns) cpu_relax();
      slept_ns += monotonic_ns() - begin_ns;
      if (++sleep_count == 60) its_loop.stop();
    }
    EventLoop& its_loop;
    uint64_t sleep_count = 0;
    uint64_t slept_ns = 0;
  } working{loop};
  make(0, working);
  const uint64_t begin_ns = monotonic_ns();
  loop.run();
  const uint64_t took_ns = monotonic_ns() - begin_ns;
  CHECK_EQUAL(60, working.sleep_count);
  CHECK(counters.busy_ns.read() + counters.spin_ns.read() >= 60 * kNsPerMs);
  CHECK(counters.spin_ns.read() <= took_ns - working.slept_ns);
}

// A sleep without work is neither busy nor spin time. The thread's work before run() does not
// count.
TEST(EventLoop, WhatItOnlyWaitsIsNotCounted) {
  struct Waiting final : Sleeper {
    explicit Waiting(EventLoop& the_loop) noexcept : its_loop(the_loop) {}
    void sleep_until(uint64_t) noexcept override {
      const timespec time = {0, 11 * kNsPerMs};
      nanosleep(&time, nullptr);
      if (++sleep_count == 3) its_loop.stop();
    }
    EventLoop& its_loop;
    uint64_t sleep_count = 0;
  } waiting{loop};
  make(0, waiting);
  const uint64_t until_ns = thread_cpu_ns() + 30 * kNsPerMs;
  while (thread_cpu_ns() < until_ns) cpu_relax();
  const uint64_t begin_ns = monotonic_ns();
  loop.run();
  const uint64_t took_ns = monotonic_ns() - begin_ns;
  CHECK(counters.busy_ns.read() + counters.spin_ns.read() + 15 * kNsPerMs <= took_ns);
}

TEST(EventLoop, CountsTheCallsOfOtherThreads) {
  make(kNsPerSecond);
  static uint32_t call_count;
  call_count = 0;
  static LoopCall call;
  a.on_poll = [](Scripted& self) noexcept {
    if (++self.rounds == 1) {
      call.function = [](void*) noexcept { ++call_count; };
      self.loop->submit(call);
    }
    if (call_count == 1) self.loop->stop();
  };
  loop.add_source(a, 1);
  loop.run();
  CHECK_EQUAL(1, counters.calls.read());
}

TEST(EventLoop, ALookAtTheClockIsTheTimeOfThisRound) {
  make(kNsPerSecond);
  loop.add_source(a, 1);
  a.on_poll = [](Scripted& self) noexcept {
    const uint64_t before_ns = self.loop->now_ns();
    while (monotonic_ns() <= before_ns) cpu_relax();
    const uint64_t looked_ns = self.loop->look_at_clock();
    if (looked_ns > before_ns && looked_ns == self.loop->now_ns()) ++self.rounds;
    self.loop->stop();
  };
  loop.run();
  LONGS_EQUAL(1, a.rounds);
}

TEST(EventLoop, GivesEachSourceItsOwnBudget) {
  make(kNsPerSecond);
  loop.add_source(a, 7);
  loop.add_source(b, 64);
  b.on_poll = &stop_after_two_rounds;
  loop.run();
  CHECK_EQUAL(7, a.last_budget);
  CHECK_EQUAL(64, b.last_budget);
}

TEST(EventLoop, StoppedBeforeItRunsItReturnsAtOnce) {
  make(0);
  loop.add_source(a, 1);
  loop.stop();
  loop.run();
  STRCMP_EQUAL("", journal.c_str());
  CHECK_EQUAL(0, sleeper.sleep_count);
}

TEST(EventLoop, FinishesItsIterationWhenItIsStopped) {
  make(kNsPerSecond);
  loop.add_source(a, 1);
  loop.add_source(b, 1);
  a.on_poll = [](Scripted& self) noexcept { self.loop->stop(); };
  loop.run();
  STRCMP_EQUAL("ab", journal.c_str());
}

// A source that records when the loop announces sleep and waking.
class Announced final : public PollSource {
 public:
  explicit Announced(EventLoop& loop) noexcept : loop_(loop) {}
  uint32_t poll(uint32_t) noexcept override {
    journal += 'p';
    if (journal.size() > 4) loop_.stop();
    return 0;
  }
  void announce_sleep() noexcept override {
    journal += 's';
    loop_.doorbell().ring();  // like a peer that sees the announcement
  }
  void announce_awake() noexcept override { journal += 'a'; }

  std::string journal;

 private:
  EventLoop& loop_;
};

TEST(EventLoop, TellsItsSourcesOfSleepBeforeTheLastLook) {
  make(0);
  Announced source(loop);
  loop.add_source(source, 1);
  loop.run();
  STRCMP_EQUAL("pspapspa", source.journal.c_str());
  CHECK_EQUAL(1, sleeper.sleep_count);
  CHECK_FALSE(sleeper.overslept);
}

TEST(EventLoop, LooksAtItsSourcesOnceMoreBeforeItSleeps) {
  make(0);
  loop.add_source(a, 1);
  // The work comes in the second poll, after the loop has decided to sleep. It must not sleep then.
  a.on_poll = [](Scripted& self) noexcept {
    ++self.rounds;
    self.work = self.rounds == 2 ? 1 : 0;
    if (self.rounds == 3) self.loop->stop();
  };
  loop.run();
  CHECK_EQUAL(0, sleeper.sleep_count);
  CHECK_EQUAL(0, counters.sleeps.read());
}

TEST(EventLoop, DoesNotSleepWhileThereIsWork) {
  make(0);
  loop.add_source(a, 1);
  a.work = 1;
  a.on_poll = [](Scripted& self) noexcept {
    if (++self.rounds == 1000) self.loop->stop();
  };
  loop.run();
  CHECK_EQUAL(1000, a.rounds);
  CHECK_EQUAL(0, sleeper.sleep_count);
}

TEST(EventLoop, SpinsForItsSpinTimeBeforeItSleeps) {
  constexpr uint64_t kSpinNs = 3 * kNsPerMs;
  struct Watcher final : Sleeper {
    explicit Watcher(EventLoop& the_loop) noexcept : loop(the_loop) {}
    void sleep_until(uint64_t) noexcept override {
      slept_at_ns = monotonic_ns();
      loop.stop();
    }
    EventLoop& loop;
    uint64_t slept_at_ns = 0;
  } watcher{loop};
  make(kSpinNs, watcher);
  const uint64_t begin = monotonic_ns();
  loop.run();
  CHECK(watcher.slept_at_ns >= begin + kSpinNs);
}

// Each sleep ends at once. The test counts the idle periods with a spin. Without a spin the loop
// polls its sources only twice before it sleeps: once, and once more after it announces the sleep.
TEST(EventLoop, SpinsHalfAsOftenAfterEachSpinInVain) {
  struct Counter final : Sleeper {
    Counter(EventLoop& the_loop, EventLoopCounters& the_counters) noexcept
        : loop(the_loop), counters(the_counters) {}
    void sleep_until(uint64_t) noexcept override {
      spun += counters.iterations.read() - iterations_before > 2;
      iterations_before = counters.iterations.read();
      if (++periods == 256) loop.stop();
    }
    EventLoop& loop;
    EventLoopCounters& counters;
    uint64_t iterations_before = 0;
    uint32_t periods = 0;
    uint32_t spun = 0;
  } counter{loop, counters};
  make(100'000, counter);
  loop.run();
  LONGS_EQUAL(256, counter.periods);
  LONGS_EQUAL(9, counter.spun);  // in the periods 1, 2, 4, 8 ... 256
}

TEST(EventLoop, SleepsUntilTheNextTimerAndCallsItNotEarly) {
  make(0);
  loop.timers().reserve_more(1);
  struct End {
    EventLoopFixture& its;
    uint64_t wait_ns = 10 * kNsPerMs;
    uint64_t deadline_ns = 0;
    uint64_t called_at_ns = 0;
    Timer timer{[](void* self) noexcept { static_cast<End*>(self)->expired(); }, this};
    void arm() noexcept { its.loop.timers().arm(timer, deadline_ns = monotonic_ns() + wait_ns); }
    void expired() noexcept {
      called_at_ns = monotonic_ns();
      if (its.sleeper.sleep_count > 0) return its.loop.stop();
      wait_ns *= 2;  // it did not sleep: the thread got no core before the deadline
      arm();
    }
  } end{*this};
  end.arm();
  loop.run();
  CHECK(end.called_at_ns >= end.deadline_ns);
  CHECK_EQUAL(end.deadline_ns, sleeper.last_deadline_ns);
  CHECK(counters.sleeps.read() >= 1);
  CHECK_EQUAL(sleeper.sleep_count, counters.sleeps.read());
}

TEST(EventLoop, SleepsNoLongerThanASourceAllows) {
  struct Limited final : PollSource {
    uint32_t poll(uint32_t) noexcept override {
      if (++polls == 20 || sleeper->overslept) loop->stop();
      return 0;
    }
    uint64_t sleep_max_ns() const noexcept override { return kNsPerMs; }
    EventLoop* loop = nullptr;
    PlainSleeper* sleeper = nullptr;
    int polls = 0;
  } limited;
  make(0);
  limited.loop = &loop;
  limited.sleeper = &sleeper;
  loop.add_source(a, 1);
  loop.add_source(limited, 1);
  const uint64_t begin_ns = monotonic_ns();
  loop.run();
  LONGS_EQUAL(20, limited.polls);  // nothing rings the doorbell
  CHECK(sleeper.sleep_count > 0);
  CHECK(sleeper.last_deadline_ns > begin_ns);
  CHECK(sleeper.last_deadline_ns <= monotonic_ns() + kNsPerMs);
}

TEST(EventLoop, WithoutTimersItSleepsForEver) {
  make(0);
  loop.add_source(a, 1);
  std::thread stopper([this] {
    test::eventually([this] { return counters.sleeps.read() > 0; });
    loop.stop();
  });
  loop.run();
  stopper.join();
  CHECK(TimerQueue::kNever == sleeper.last_deadline_ns);
  CHECK(!sleeper.overslept);
}

TEST(EventLoop, CallsTimersWhileItIsBusy) {
  make(0);
  loop.timers().reserve_more(1);
  Timer end{[](void* context) noexcept { static_cast<EventLoop*>(context)->stop(); }, &loop};
  loop.add_source(a, 1);
  a.work = 1;
  // Ends the test if busy loops forget their timers.
  a.on_poll = [](Scripted& self) noexcept {
    if (++self.rounds == 200'000'000) self.loop->stop();
  };
  loop.timers().arm(end, monotonic_ns() + 5 * kNsPerMs);
  loop.run();
  CHECK(a.rounds < 200'000'000);
  CHECK_EQUAL(0, sleeper.sleep_count);
}

TEST(EventLoop, ItsTimeIsThatOfTheRunFromTheFirstIterationOn) {
  make(0);
  loop.add_source(a, 1);
  static uint64_t seen_ns;
  seen_ns = 0;
  a.on_poll = [](Scripted& self) noexcept {
    if (seen_ns == 0) seen_ns = self.loop->now_ns();
    self.loop->stop();
  };
  // A boot may take long between create and run.
  const uint64_t created = loop.now_ns();
  while (monotonic_ns() == created) {
  }
  const uint64_t begin = monotonic_ns();
  loop.run();
  CHECK(seen_ns >= begin);
}

TEST(EventLoop, InsistsOnItsRequirements) {
  make(0);
  BP_CHECK_DIES("a source is added without a budget or a name", loop.add_source(a, 0));
  BP_CHECK_DIES("more sources are added to a loop than it may have, 16", {
    for (uint32_t i = 0; i <= EventLoopOptions{}.source_count_max; ++i) loop.add_source(a, 1);
  });
  BP_CHECK_DIES("a loop is given a second sleeper, and a shard's is its sockets",
                loop.set_sleeper(sleeper));
  BP_CHECK_DIES("a loop runs that has no sleeper", {
    EventLoop other;
    other.run();
  });
}
