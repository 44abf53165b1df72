// An object belongs to no thread, then to one thread, then to no thread again.
#include "platform/thread_owner.h"

#include <atomic>
#include <thread>

#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

bool is_anothers(ThreadOwner& owner) {
  bool is_caller = true;
  std::thread([&] { is_caller = owner.is_caller(); }).join();
  return !is_caller;
}

}  // namespace

TEST_GROUP(ThreadOwner) { ThreadOwner owner; };

TEST(ThreadOwner, IsAnybodysUntilItIsHeld) {
  CHECK(owner.is_caller() && !owner.is_held());
  CHECK_FALSE(is_anothers(owner));
}

TEST(ThreadOwner, IsTheHoldersUntilTheOutermostHoldEnds) {
  {
    const ThreadOwner::Hold outer(owner);
    {
      const ThreadOwner::Hold inner(owner);
      CHECK(owner.is_caller() && owner.is_held() && is_anothers(owner));
    }
    CHECK(owner.is_caller() && owner.is_held() && is_anothers(owner));
  }
  CHECK_FALSE(owner.is_held() || is_anothers(owner));
}

TEST(ThreadOwner, IsHeldByItsHolderAlone) {
  CHECK_FALSE(owner.is_held_by_caller());
  const ThreadOwner::Hold hold(owner);
  CHECK(owner.is_held_by_caller());
  bool is_held_by_other = true;
  std::thread([&] { is_held_by_other = owner.is_held_by_caller(); }).join();
  CHECK_FALSE(is_held_by_other);
}

// A thread that asks while the holder takes or releases the object never counts as the holder.
TEST(ThreadOwner, IsNeverTheCallersWhileOthersTakeItAndGiveItBack) {
  std::atomic<bool> is_over{false};
  std::thread holder([&] {
    while (!is_over.load(std::memory_order_relaxed)) const ThreadOwner::Hold hold(owner);
  });
  while (!owner.is_held()) {  // until the holder has begun
  }
  int held_count = 0;
  for (int i = 0; i < 1'000'000; ++i) held_count += owner.is_held_by_caller() ? 1 : 0;
  is_over.store(true, std::memory_order_relaxed);
  holder.join();
  CHECK_EQUAL(0, held_count);
}

TEST(ThreadOwner, IsHeldForWhatIsHotInDebugBuildsAlone) {
  const ThreadOwner::DebugHold hold(owner);
  CHECK_EQUAL(BP_DEBUG != 0, owner.is_held());
}

TEST(ThreadOwner, APartIsItsWholesWhileNobodyHoldsIt) {
  ThreadOwner part;
  part.follow(owner);
  CHECK_FALSE(is_anothers(part));
  {
    const ThreadOwner::Hold hold(owner);
    CHECK(part.is_caller() && !part.is_held() && is_anothers(part));
    const ThreadOwner::Hold own(part);
    CHECK(part.is_caller() && is_anothers(part));
  }
  CHECK_FALSE(is_anothers(part));
}

TEST(ThreadOwner, AFunctionOnAnotherThreadIsNamed) {
  const ThreadOwner::Hold hold(owner);
  BP_REQUIRE_THREAD(owner.is_caller(), "Loop::turn");
  bool is_own_thread = true;
  std::thread([&] { is_own_thread = owner.is_caller(); }).join();
  BP_CHECK_DIES("broken contract: Loop::turn was called on another thread than its shard's: call "
                "it there (EventLoop::submit, bp_post)\n",
                BP_REQUIRE_THREAD(is_own_thread, "Loop::turn"));
}

BP_PROBE(hold_what_another_thread_holds) {
  ThreadOwner owner;
  const ThreadOwner::Hold mine(owner);
  std::thread([&] { const ThreadOwner::Hold theirs(owner); }).join();
}

TEST(ThreadOwner, TwoThreadsCannotHoldIt) {
  const Ended ended = run_fresh("hold_what_another_thread_holds");
  CHECK(ended.signal != 0);
  CHECK(ended.said("before_ == this_thread()"));
}
