#include "apps/boot/core_watch.h"

#include <atomic>
#include <string>
#include <thread>

#include <sched.h>
#include <unistd.h>

#include "platform/cpu.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr int kNoCore = CPU_SETSIZE - 1;  // a core that this machine does not have

size_t count_of(const std::string& text, const std::string& words) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(words, at)) != text.npos; at += words.size()) ++count;
  return count;
}

}  // namespace

TEST_GROUP(CoreWatch) {
  std::atomic<pid_t> thread{0};
  std::atomic<bool> must_end{false};
  int cpu = 0;
  ShardCounters counters;
  CoreWatch watch;
  std::thread pinned;

  void setup() override {
    while (!cpu_is_usable(cpu)) ++cpu;
    pinned = std::thread([this] {
      const bool is_good = pin_this_thread(cpu).ok();
      thread.store(is_good ? gettid() : -1);
      thread.notify_all();
      must_end.wait(false);
    });
    thread.wait(0);
    CHECK(thread.load() > 0);
  }
  void teardown() override {
    must_end.store(true);
    must_end.notify_all();
    pinned.join();
  }

  // Moves the thread off its core, as taskset does, or the kernel when a cpuset shrinks.
  void move_away() {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (int other = 0; other < kNoCore; ++other) {
      if (other != cpu && cpu_is_usable(other)) CPU_SET(static_cast<unsigned>(other), &cpus);
    }
    LONGS_EQUAL(0, sched_setaffinity(thread.load(), sizeof cpus, &cpus));
  }
};

TEST(CoreWatch, AThreadOnItsCoreIsLeftAlone) {
  watch.add("main", thread.load(), cpu, counters);
  test::StderrCapture said;
  watch.look();
  STRCMP_EQUAL("", said.finish().c_str());
  LONGS_EQUAL(0, counters.core_moves.read());
  LONGS_EQUAL(0, counters.is_off_core.read());
}

TEST(CoreWatch, AThreadThatWasMovedIsPinnedAgainAndCounted) {
  if (usable_cpu_count() < 2) BP_SKIP("there is one core");
  watch.add("main", thread.load(), cpu, counters);
  for (uint32_t moves = 1; moves <= 2; ++moves) {
    move_away();
    CHECK_FALSE(is_pinned(thread.load(), cpu));
    test::StderrCapture said;
    watch.look();
    watch.look();
    const std::string text = said.finish();
    CHECK(is_pinned(thread.load(), cpu));
    LONGS_EQUAL(moves, counters.core_moves.read());
    LONGS_EQUAL(0, counters.is_off_core.read());
    LONGS_EQUAL(1, count_of(text, "keeping shard main on core " + std::to_string(cpu) + ": "));
    LONGS_EQUAL(1, count_of(text, "and was pinned again; find what changes the cpuset"));
  }
}

TEST(CoreWatch, WhatMayNotGoBackRaisesAnAlertAndIsToldOnce) {
  watch.add("main", thread.load(), kNoCore, counters);
  test::StderrCapture said;
  for (int i = 0; i < 5; ++i) watch.look();
  const std::string text = said.finish();
  LONGS_EQUAL(1, counters.core_moves.read());
  LONGS_EQUAL(1, counters.is_off_core.read());
  LONGS_EQUAL(1, count_of(text, "\n"));
  CHECK(text.find("cannot go back (Invalid argument); return that core") != text.npos);
  CHECK(is_pinned(thread.load(), cpu));  // the thread stays on its core
}

TEST(CoreWatch, OneThatIsBackRaisesNoAlert) {
  watch.add("main", thread.load(), cpu, counters);
  counters.is_off_core.set(1);
  test::StderrCapture said;
  watch.look();
  CHECK(said.finish().find("shard main is on core " + std::to_string(cpu) + " again") !=
        std::string::npos);
  LONGS_EQUAL(0, counters.is_off_core.read());
}
