// Calls from other threads: each runs once, in order, on the loop's thread, and none is lost.
#include "transport/loop/loop_call_datapath.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/transport/loop/running_loop.h"
#include "transport/loop/event_loop.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// A call that adds its letter to the journal.
struct Letter {
  Letter(char its_letter, std::string& its_journal) noexcept
      : letter(its_letter), journal(its_journal) {}
  char letter;
  std::string& journal;
  LoopCallQueue* queue = nullptr;  // where the call pushes itself again, once
  LoopCall call = {.function =
                       [](void* context) noexcept {
                         auto& self = *static_cast<Letter*>(context);
                         self.journal += self.letter;
                         if (self.queue != nullptr) CHECK(self.queue->push(self.call));
                         self.queue = nullptr;
                       },
                   .context = this};
};

}  // namespace

TEST_GROUP(LoopCall) {
  std::string journal;
  std::unique_ptr<LoopCallQueue> queue = std::make_unique<LoopCallQueue>();
  Letter a{'a', journal}, b{'b', journal}, c{'c', journal};
};

TEST(LoopCall, AreMadeInTheOrderInWhichTheyWerePushed) {
  LONGS_EQUAL(0, queue->run());
  for (Letter* each : {&b, &a, &c}) CHECK(queue->push(each->call));
  LONGS_EQUAL(3, queue->run());
  STRCMP_EQUAL("bac", journal.c_str());
  LONGS_EQUAL(0, queue->run());
}

TEST(LoopCall, ThatIsPendingIsMadeOnce) {
  CHECK(queue->push(a.call));
  CHECK_FALSE(queue->push(a.call));
  CHECK(queue->push(b.call));
  LONGS_EQUAL(2, queue->run());
  STRCMP_EQUAL("ab", journal.c_str());
  CHECK(queue->push(a.call));
  LONGS_EQUAL(1, queue->run());
}

TEST(LoopCall, WhatACallPushesIsLeftToTheNextTime) {
  a.queue = queue.get();
  for (Letter* each : {&a, &b}) CHECK(queue->push(each->call));
  LONGS_EQUAL(2, queue->run());
  STRCMP_EQUAL("ab", journal.c_str());
  LONGS_EQUAL(1, queue->run());
  STRCMP_EQUAL("aba", journal.c_str());
}

TEST(LoopCall, WithoutAFunctionIsAProgrammingError) {
  LoopCall nothing;
  BP_CHECK_DIES("a call without a function is submitted to a loop: LoopCall::function",
                queue->push(nothing));
}

TEST(LoopCall, IsMadeOnTheLoopsThreadThoughItSleeps) {
  struct Seen {
    std::atomic<bool> was_made{false};
    std::thread::id thread;
  } seen;
  LoopCall call = {.function =
                       [](void* context) noexcept {
                         auto& its = *static_cast<Seen*>(context);
                         its.thread = std::this_thread::get_id();
                         its.was_made.store(true);
                       },
                   .context = &seen};
  test::RunningLoop running(0);
  for (int round = 0; round < 200; ++round) {
    seen.was_made.store(false);
    CHECK(running.loop->submit(call));
    CHECK(test::eventually([&] { return seen.was_made.load(); }));
    CHECK(seen.thread == running.thread.get_id());
    // The call may be submitted again just before it runs.
    CHECK_FALSE(call.is_pending.load());
  }
}

// A submitter may find its call pending. The pending call must see all that was written before.
TEST(LoopCall, OfManyThreadsAreAllMadeAndSeeWhatWasWrittenBefore) {
  constexpr int kThreadCount = 4;
  constexpr uint64_t kRounds = 5000;
  struct Submitter {
    std::atomic<uint64_t> written{0};  // relaxed: the call itself must order it
    std::atomic<uint64_t> seen{0};
    LoopCall call = {.function =
                         [](void* context) noexcept {
                           auto& self = *static_cast<Submitter*>(context);
                           self.seen.store(self.written.load(std::memory_order_relaxed),
                                           std::memory_order_relaxed);
                         },
                     .context = this};
  };
  for (const uint64_t spin_ns : {uint64_t{0}, kNsPerMs}) {
    Submitter submitters[kThreadCount];  // outlive the loop, which may hold their calls
    test::RunningLoop running(spin_ns);
    std::vector<std::thread> threads;
    for (Submitter& each : submitters) {
      threads.emplace_back([&each, &running] {
        for (uint64_t round = 1; round <= kRounds; ++round) {
          each.written.store(round, std::memory_order_relaxed);
          running.loop->submit(each.call);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Submitter& each : submitters) {
      CHECK(test::eventually([&] { return each.seen.load() == kRounds; }));
    }
  }
}
