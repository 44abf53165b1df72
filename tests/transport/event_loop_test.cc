// The event loop: order, budgets, timers, sleeping, and that no wake-up is ever lost.
#include "transport/event_loop.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "platform/clock.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/plain_sleeper.h"
#include "transport/spsc_fifo_datapath.h"
#include "transport/stream_sockets.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::PlainSleeper;

namespace {

// Has work for some rounds, then stops the loop, and writes down how it was polled.
class Scripted final : public PollSource {
 public:
  Scripted(char name, std::string& journal) noexcept : name_(name), journal_(journal) {}
  uint32_t poll(uint32_t budget) noexcept override {
    last_budget = budget;
    if (journal_.size() < journal_.capacity()) journal_ += name_;
    if (on_poll != nullptr) on_poll(*this);
    return work;
  }
  uint32_t work = 0;
  uint32_t last_budget = 0;
  uint32_t rounds = 0;
  EventLoop* loop = nullptr;
  void (*on_poll)(Scripted&) noexcept = nullptr;

 private:
  char name_;
  std::string& journal_;
};

void stop_after_two_rounds(Scripted& self) noexcept {
  if (++self.rounds == 2) self.loop->stop();
}

}  // namespace

TEST_GROUP(EventLoop) {
  // Apart, because CppUTest's new knows no alignment.
  std::unique_ptr<EventLoop> loop_memory = std::make_unique<EventLoop>();
  EventLoop& loop = *loop_memory;
  EventLoopCounters counters;
  PlainSleeper sleeper{loop};
  std::string journal;
  Scripted a{'a', journal};
  Scripted b{'b', journal};
  Scripted c{'c', journal};

  void setup() override { journal.reserve(4096); }

  void make(uint64_t spin_ns) { make(spin_ns, sleeper); }
  void make(uint64_t spin_ns, Sleeper& what_it_sleeps_in, uint64_t stall_ns = 0) {
    EventLoopOptions options;
    options.stall_ns = stall_ns;
    options.spin_ns = spin_ns;
    options.counters = &counters;
    CHECK(loop.create(options).ok());
    loop.set_sleeper(what_it_sleeps_in);
    a.loop = b.loop = c.loop = &loop;
  }
};

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

// One round with work in sixteen is measured, and only sources that had work in it.
TEST(EventLoop, MeasuresEverySixteenthRoundWithWork) {
  make(kNsPerSecond);
  const auto busy = std::make_unique<Histogram>();
  const auto idle = std::make_unique<Histogram>();
  loop.add_source(a, 1, "a", busy.get());
  loop.add_source(b, 1, "b", idle.get());
  loop.add_source(c, 1);  // counts for the round alone
  a.on_poll = c.on_poll = [](Scripted& self) noexcept {
    // Work in every other round, so that the time is fresh before each.
    self.work = self.rounds++ % 2;
    const uint64_t until_ns = monotonic_ns() + 20 * kNsPerUs * self.work;
    while (monotonic_ns() < until_ns) cpu_relax();
    if (self.rounds == 2 * 16 * 40) self.loop->stop();
  };
  loop.run();
  CHECK_EQUAL(40, busy->count());
  CHECK_EQUAL(0, idle->count());
  CHECK_EQUAL(40, counters.round.count());
  CHECK(busy->percentile(0.01) >= 20 * kNsPerUs);
  CHECK(counters.round.percentile(0.01) >= 40 * kNsPerUs);
}

TEST(EventLoop, IdleRoundsAreNotMeasured) {
  make(kNsPerSecond);
  const auto rounds = std::make_unique<Histogram>();
  loop.add_source(a, 1, "a", rounds.get());
  a.on_poll = [](Scripted& self) noexcept {
    if (++self.rounds == 100) self.loop->stop();
  };
  loop.run();
  CHECK_EQUAL(0, rounds->count() + counters.round.count());
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

// A source that says when it was told of sleep and waking.
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
    loop_.doorbell().ring();  // as one whom this announcement lets ring
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
  // Work shows up at the second look only: the loop must not sleep on it.
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

// A sleeper that is woken at once by nothing, and counts how often the loop spun before it slept: a
// period without a spin is one look at the sources, and one more under the announcement.
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
  static uint64_t called_at_ns;
  Timer end{[](void* context) noexcept {
              called_at_ns = monotonic_ns();
              static_cast<EventLoop*>(context)->stop();
            },
            &loop};
  const uint64_t deadline = monotonic_ns() + 20 * kNsPerMs;
  loop.timers().arm(end, deadline);
  loop.run();
  CHECK(called_at_ns >= deadline);
  CHECK_EQUAL(deadline, sleeper.last_deadline_ns);
  CHECK(counters.sleeps.read() >= 1);
  CHECK_EQUAL(sleeper.sleep_count, counters.sleeps.read());
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
  // A bound of its own, since it would never end if busy loops forgot their timers.
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
  BP_CHECK_DIES("budget > 0", loop.add_source(a, 0));
  BP_CHECK_DIES("source_count_ < options_.source_count_max", {
    for (uint32_t i = 0; i <= EventLoopOptions{}.source_count_max; ++i) loop.add_source(a, 1);
  });
  BP_CHECK_DIES("a loop has one sleeper; a shard's is its sockets", loop.set_sleeper(sleeper));
  BP_CHECK_DIES("sleeper_ != nullptr", {
    EventLoop other;
    other.run();
  });
}

// ---- stalls -------------------------------------------------------------------------------------

namespace {

constexpr uint64_t kStallNs = 20 * kNsPerMs;

uint64_t processor_ns() noexcept {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_nsec);
}

// Of the processor's time: what the machine gives to others is no stall.
void be_busy(uint64_t time_ns) noexcept {
  const uint64_t end = processor_ns() + time_ns;
  while (processor_ns() < end) {
  }
}

// Keeps the loop for longer than it may, twice; ends it some rounds later.
void stall_twice(Scripted& self) noexcept {
  if (++self.rounds <= 2) be_busy(3 * kStallNs);
  if (self.rounds == 5) self.loop->stop();
}

void block_twice(Scripted& self) noexcept {
  const timespec time = {0, 3 * kStallNs};
  if (++self.rounds <= 2) nanosleep(&time, nullptr);
  if (self.rounds == 5) self.loop->stop();
}

}  // namespace

TEST(EventLoop, WhatKeepsItIsNamedAndCounted) {
  for (auto keep : {&stall_twice, &block_twice}) {
    EventLoopCounters own;
    const auto fresh = std::make_unique<EventLoop>();
    PlainSleeper its_sleeper{*fresh};
    CHECK(fresh->create({.spin_ns = kNsPerSecond, .stall_ns = kStallNs, .counters = &own}).ok());
    fresh->set_sleeper(its_sleeper);
    a.loop = fresh.get();
    a.on_poll = keep;
    a.rounds = 0;
    a.work = 1;
    fresh->add_source(b, 1, "the quick one");
    fresh->add_source(a, 1, "the slow one");
    fresh->add_source(c, 1, "another quick one");
    test::StderrCapture capture;
    fresh->run();
    a.work = 0;
    const std::string log = capture.finish();
    CHECK(own.stalled.stalls.read() >= 1);
    CHECK(own.stalled.longest_ns.read() >= 3 * kStallNs);
    STRCMP_CONTAINS("work had: the slow one;", log.c_str());
    CHECK_TEXT(log.find("quick") == std::string::npos, log.c_str());
  }
}

// After the first it is timed, and needs no guess: without work, too.
TEST(EventLoop, TheSecondStallIsOneSourcesOwn) {
  make(kNsPerSecond, sleeper, kStallNs);
  a.on_poll = &stall_twice;
  b.work = c.work = 0;
  loop.add_source(b, 1, "the quick one");
  loop.add_source(a, 1, "the slow one");
  loop.add_source(c, 1, "another quick one");
  test::StderrCapture capture;
  loop.run();
  const std::string log = capture.finish();
  STRCMP_CONTAINS("the slow one kept its event loop for", log.c_str());
  CHECK_TEXT(log.find("quick") == std::string::npos, log.c_str());
}

TEST(EventLoop, ATimerThatKeepsItIsNamed) {
  make(kNsPerSecond, sleeper, kStallNs);
  loop.timers().reserve_more(1);
  static uint32_t rounds;
  rounds = 0;
  static EventLoop* its_loop;
  its_loop = &loop;
  static Timer timer;
  timer = {};
  timer.expired = [](void*) noexcept {
    if (++rounds == 3) return its_loop->stop();
    be_busy(3 * kStallNs);
    its_loop->timers().arm(timer, monotonic_ns());
  };
  loop.timers().arm(timer, 0);
  loop.add_source(a, 1, "the quick one");
  test::StderrCapture capture;
  loop.run();
  const std::string log = capture.finish();
  STRCMP_CONTAINS("work had: a timer;", log.c_str());
  STRCMP_CONTAINS("a timer kept its event loop for", log.c_str());
}

TEST(EventLoop, ItsLogOfStallsIsLimited) {
  make(kNsPerSecond, sleeper, 1);  // everything is one
  a.on_poll = [](Scripted& self) noexcept {
    if (++self.rounds == 1000) self.loop->stop();
  };
  loop.add_source(a, 1);
  test::StderrCapture capture;
  loop.run();
  const std::string log = capture.finish();
  CHECK(counters.stalled.stalls.read() > 100);
  CHECK(std::count(log.begin(), log.end(), '\n') < 20);
}

TEST(EventLoop, WithoutALimitNothingIsAStall) {
  make(kNsPerSecond, sleeper, 0);
  a.on_poll = &stall_twice;
  loop.add_source(a, 1);
  test::StderrCapture capture;
  loop.run();
  STRCMP_EQUAL("", capture.finish().c_str());
  CHECK_EQUAL(0, counters.stalled.stalls.read());
}

TEST(EventLoop, ASleepIsNoStall) {
  struct Slow final : Sleeper {
    explicit Slow(EventLoop& the_loop) noexcept : its_loop(the_loop) {}
    void sleep_until(uint64_t) noexcept override {
      be_busy(3 * kStallNs);
      its_loop.stop();
    }
    EventLoop& its_loop;
  } slow{loop};
  make(0, slow, kStallNs);
  loop.run();
  CHECK_EQUAL(0, counters.stalled.stalls.read());
}

// A thread of a higher class takes the core away in the middle of a callback.
TEST(EventLoop, TimeThatTheMachineTakesIsNobodysStall) {
  if (access("/proc/thread-self/schedstat", R_OK) != 0) BP_SKIP("the kernel counts no waiting");
  make(kNsPerSecond, sleeper, kStallNs);
  cpu_set_t before, one;
  CHECK_EQUAL(0, sched_getaffinity(0, sizeof before, &before));
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  CHECK_EQUAL(0, sched_setaffinity(0, sizeof one, &one));  // those that it starts, too
  static std::atomic<bool> go, has_class, is_over;
  go = has_class = is_over = false;
  std::thread thief([] {
    const sched_param first = {.sched_priority = 1};
    has_class = pthread_setschedparam(pthread_self(), SCHED_FIFO, &first) == 0;
    while (!go) std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (has_class) be_busy(5 * kStallNs);
    is_over = true;
  });
  a.on_poll = [](Scripted& self) noexcept {
    go = true;
    const uint64_t end = monotonic_ns() + test::kPatienceNs;
    if (self.rounds == 0) {
      while (!is_over && monotonic_ns() < end) {
      }
    }
    if (++self.rounds == 5) self.loop->stop();
  };
  loop.add_source(a, 1, "the innocent");
  test::StderrCapture capture;
  loop.run();
  const std::string log = capture.finish();
  thief.join();
  CHECK_EQUAL(0, sched_setaffinity(0, sizeof before, &before));
  if (!has_class) BP_SKIP("this user may not raise a thread's class");
  CHECK(counters.stalled.preemptions.read() >= 1);
  CHECK_EQUAL(0, counters.stalled.stalls.read());
  STRCMP_CONTAINS("give the shard a core of its own", log.c_str());
  CHECK_TEXT(log.find("innocent") == std::string::npos, log.c_str());
}

// ---- no lost wake-up ----------------------------------------------------------------------------

namespace {

using Fifo = SpscFifo<uint64_t>;

// Counts what comes out of a lane, and how much of it was not the next number.
class LaneSource final : public PollSource {
 public:
  explicit LaneSource(Fifo& fifo) noexcept : fifo_(fifo) {}
  uint32_t poll(uint32_t budget) noexcept override {
    uint64_t batch[16];
    const size_t count = fifo_.pop_batch({batch, std::min<size_t>(budget, 16)});
    for (size_t i = 0; i < count; ++i) wrong += batch[i] != expected++;
    if (count > 0) taken.store(expected, std::memory_order_release);
    return static_cast<uint32_t>(count);
  }
  std::atomic<uint64_t> taken{0};
  uint64_t wrong = 0;

 private:
  Fifo& fifo_;
  uint64_t expected = 0;
};

struct WakeUpRun {
  uint64_t pushed = 0;
  uint64_t wrong = 0;
  uint64_t sleeps = 0;
  bool was_lost = false;
  bool has_backend = true;
};

enum class SleepsIn { kPlain, kEpoll, kUring };

// Pushes and rings at random moments, mostly when the loop is just about to sleep: each push waits
// until the one before was taken, and then a random little while.
void produce(Fifo& fifo, EventLoop& loop, LaneSource& source, uint64_t seed, uint64_t rounds,
             WakeUpRun& run) {
  std::mt19937_64 random(seed);
  for (; run.pushed < rounds && !run.was_lost; ++run.pushed) {
    for (uint64_t i = random() % 2000; i-- > 0;) cpu_relax();
    fifo.try_push(run.pushed);
    loop.doorbell().ring();
    const uint64_t end = monotonic_ns() + test::kPatienceNs;
    while (source.taken.load(std::memory_order_acquire) <= run.pushed && !run.was_lost) {
      run.was_lost = monotonic_ns() > end;
      if (random() % 8 == 0) std::this_thread::yield();
    }
  }
}

WakeUpRun run_wake_ups(SleepsIn where, uint64_t seed, uint64_t rounds) {
  WakeUpRun run;
  EventLoop loop;
  EventLoopCounters counters;
  SocketCounters socket_counters;
  EventLoopOptions options;
  options.spin_ns = 0;
  options.counters = &counters;
  if (!loop.create(options).ok()) return run;
  alignas(kCacheLineBytes) std::byte memory[Fifo::bytes_for(64)];
  Fifo& fifo = *Fifo::create(memory, 64);
  LaneSource source(fifo);
  PlainSleeper plain(loop);
  std::unique_ptr<StreamSockets> sockets;
  if (where == SleepsIn::kEpoll) sockets = make_epoll_sockets();
  if (where == SleepsIn::kUring) sockets = make_uring_sockets();
  if (sockets != nullptr) {
    StreamSocketsOptions socket_options;
    socket_options.loop = &loop;
    socket_options.counters = &socket_counters;
    run.has_backend = sockets->create(socket_options).ok();
    if (!run.has_backend) return run;
    loop.add_source(*sockets, 16);
    loop.set_sleeper(*sockets);
  } else {
    loop.set_sleeper(plain);
  }
  loop.add_source(source, 16);
  std::thread producer([&] {
    produce(fifo, loop, source, seed, rounds, run);
    loop.stop();
  });
  loop.run();
  producer.join();
  run.wrong = source.wrong;
  run.sleeps = counters.sleeps.read();
  return run;
}

void check_wake_ups(SleepsIn where) {
  const test::Seed seed;
  const uint64_t rounds = test::kIsSanitized ? 5'000 : 30'000;
  const WakeUpRun run = run_wake_ups(where, seed.value(), rounds);
  if (!run.has_backend) BP_SKIP("io_uring is not available here");
  CHECK_TEXT(!run.was_lost, seed.text());
  CHECK_EQUAL_TEXT(rounds, run.pushed, seed.text());
  CHECK_EQUAL_TEXT(0, run.wrong, seed.text());
  CHECK_TEXT(run.sleeps > 100, "it hardly ever slept, so this has shown nothing");
}

}  // namespace

TEST(EventLoop, LosesNoWakeUpThatSleepsOnTheDoorbell) { check_wake_ups(SleepsIn::kPlain); }
TEST(EventLoop, LosesNoWakeUpThatSleepsInEpoll) { check_wake_ups(SleepsIn::kEpoll); }
TEST(EventLoop, LosesNoWakeUpThatSleepsInIoUring) { check_wake_ups(SleepsIn::kUring); }
