// An object belongs to nobody, then to one thread, and to nobody again.
#include "platform/thread_owner.h"

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

TEST(ThreadOwner, IsHeldForWhatIsHotInDebugBuildsAlone) {
  const ThreadOwner::DebugHold hold(owner);
  CHECK_EQUAL(BP_DEBUG != 0, owner.is_held());
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
