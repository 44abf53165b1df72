// A source or timer that occupies an event loop for too long is named and counted; others are not.
#include "transport/loop/stall_watch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <thread>

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/process_pulse.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/loop/event_loop_fixture.h"
#include "transport/loop/shard_plan.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP_BASE(StallWatch, EventLoopFixture){};

namespace {

constexpr uint64_t kStallNs = 20 * kNsPerMs;

uint64_t processor_ns() noexcept {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_nsec);
}

// Uses processor time: time that other threads take is no stall.
void be_busy(uint64_t time_ns) noexcept {
  const uint64_t end = processor_ns() + time_ns;
  while (processor_ns() < end) {
  }
}

// Occupies the loop for too long twice, and stops it some rounds later.
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

TEST(StallWatch, WhatKeepsItIsNamedAndCounted) {
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
    SourceCounters of_quick;
    SourceCounters of_slow;
    fresh->add_source(b, 1, "the quick one", &of_quick);
    fresh->add_source(a, 1, "the slow one", &of_slow);
    fresh->add_source(c, 1, "another quick one");
    test::StderrCapture capture;
    fresh->run();
    a.work = 0;
    const std::string log = capture.finish();
    CHECK(own.stalled.stalls.read() >= 1);
    CHECK(own.stalled.longest_ns.read() >= 3 * kStallNs);
    CHECK_EQUAL(own.stalled.stalls.read(), of_slow.stalls.read());
    CHECK_EQUAL(0, of_quick.stalls.read());
    CHECK_EQUAL(0, own.timer_stalls.read() + own.call_stalls.read());
    STRCMP_CONTAINS("with work: the slow one;", log.c_str());
    CHECK_TEXT(log.find("quick") == std::string::npos, log.c_str());
  }
}

// After the first stall each source is timed, so the second is named exactly, also without work.
TEST(StallWatch, TheSecondStallIsOneSourcesOwn) {
  make(kNsPerSecond, sleeper, kStallNs);
  a.on_poll = &stall_twice;
  b.work = c.work = 0;
  SourceCounters of_quick;
  SourceCounters of_slow;
  loop.add_source(b, 1, "the quick one", &of_quick);
  loop.add_source(a, 1, "the slow one", &of_slow);
  loop.add_source(c, 1, "another quick one");
  test::StderrCapture capture;
  loop.run();
  const std::string log = capture.finish();
  STRCMP_CONTAINS("the slow one occupied an event loop for", log.c_str());
  CHECK(of_slow.stalls.read() >= 1);
  CHECK_EQUAL(0, of_quick.stalls.read());
  CHECK_TEXT(log.find("quick") == std::string::npos, log.c_str());
}

TEST(StallWatch, ATimerThatKeepsItIsNamed) {
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
  STRCMP_CONTAINS("with work: a timer;", log.c_str());
  STRCMP_CONTAINS("a timer occupied an event loop for", log.c_str());
  CHECK_EQUAL(counters.stalled.stalls.read(), counters.timer_stalls.read());
}

// The line names the shard, and the services of timers and calls.
TEST(StallWatch, OfAShardItNamesShardAndServices) {
  ShardPlan plan("main");
  plan.add(current_heap_owner(), "cache", {1, 0, 0});
  const auto fresh = std::make_unique<EventLoop>();
  PlainSleeper its_sleeper{*fresh};
  EventLoopCounters own;
  EventLoopOptions options = {.spin_ns = kNsPerSecond, .stall_ns = kStallNs};
  options.plan = &plan;
  options.counters = &own;
  CHECK(fresh->create(options).ok());
  fresh->set_sleeper(its_sleeper);
  static EventLoop* its_loop;
  its_loop = fresh.get();
  static uint32_t rounds;
  rounds = 0;
  static LoopCall call;
  call.function = [](void*) noexcept {
    be_busy(3 * kStallNs);
    its_loop->stop();
  };
  static Timer timer;
  timer = {};
  timer.expired = [](void*) noexcept {
    be_busy(3 * kStallNs);
    if (++rounds == 2) return (void)its_loop->submit(call);
    its_loop->timers().arm(timer, monotonic_ns());
  };
  fresh->timers().arm(timer, 0);
  test::StderrCapture capture;
  fresh->run();
  const std::string log = capture.finish();
  STRCMP_CONTAINS("shard main was occupied for ", log.c_str());
  STRCMP_CONTAINS("with work: a timer (cache);", log.c_str());
  STRCMP_CONTAINS("a timer (cache) occupied shard main for ", log.c_str());
  STRCMP_CONTAINS("a call from another thread (cache) occupied shard main for ", log.c_str());
}

TEST(StallWatch, ItsLogOfStallsIsLimited) {
  make(kNsPerSecond, sleeper, 1);  // every round is a stall
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

TEST(StallWatch, WithoutALimitNothingIsAStall) {
  make(kNsPerSecond, sleeper, 0);
  a.on_poll = &stall_twice;
  loop.add_source(a, 1);
  test::StderrCapture capture;
  loop.run();
  STRCMP_EQUAL("", capture.finish().c_str());
  CHECK_EQUAL(0, counters.stalled.stalls.read());
}

TEST(StallWatch, ASleepIsNoStall) {
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

// A thread of a higher scheduling class takes the core during a callback.
TEST(StallWatch, TimeThatTheMachineTakesIsNobodysStall) {
  if (access("/proc/thread-self/schedstat", R_OK) != 0) BP_SKIP("the kernel counts no waiting");
  make(kNsPerSecond, sleeper, kStallNs);
  cpu_set_t before, one;
  CHECK_EQUAL(0, sched_getaffinity(0, sizeof before, &before));
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  CHECK_EQUAL(0, sched_setaffinity(0, sizeof one, &one));  // also for the threads that it starts
  static std::atomic<bool> is_ready, go, has_class, is_over;
  is_ready = go = has_class = is_over = false;
  std::thread thief([] {
    const sched_param first = {.sched_priority = 1};
    has_class = pthread_setschedparam(pthread_self(), SCHED_FIFO, &first) == 0;
    is_ready = true;
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
  CHECK(test::eventually([] { return is_ready.load(); }));  // now the thief has its priority
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

// The test cannot stop its own process. A pulse that no longer beats looks the same.
TEST(StallWatch, WhereTheWholeProcessStoodStillNothingStalled) {
  ProcessPulse pulse;
  pulse.set_period(kNsPerMs);
  make(kNsPerSecond, sleeper, kStallNs, &pulse);
  pulse.beat(monotonic_ns());
  a.on_poll = &block_twice;
  loop.add_source(a, 1, "the innocent");
  test::StderrCapture capture;
  loop.run();
  const std::string log = capture.finish();
  CHECK_EQUAL(0, counters.stalled.stalls.read());
  CHECK(counters.stalled.standstills.read() >= 1);
  STRCMP_CONTAINS("the whole process stood still for ", log.c_str());
  CHECK_TEXT(log.find("innocent") == std::string::npos, log.c_str());
}

TEST(StallWatch, WhereTheWitnessRestsAStallIsOne) {
  ProcessPulse pulse;
  pulse.set_period(kNsPerMs);
  make(kNsPerSecond, sleeper, kStallNs, &pulse);
  pulse.beat(monotonic_ns());
  pulse.rest(monotonic_ns());
  a.on_poll = &block_twice;
  loop.add_source(a, 1, "the slow one");
  test::StderrCapture capture;
  loop.run();
  capture.finish();
  CHECK(counters.stalled.stalls.read() >= 1);
  CHECK_EQUAL(0, counters.stalled.standstills.read());
}
