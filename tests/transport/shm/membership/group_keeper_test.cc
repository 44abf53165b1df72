// The owner's work for a group: it forgets dead members, resets their part of the segment, and
// wakes sleepers. One thread plays all members.
#include "transport/shm/membership/group_keeper.h"

#include "tests/support/pool_fixture.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr uint32_t kDead = 1;

// Three members, one of which dies.
struct KeeperRig {
  KeeperRig() {
    for (uint32_t i = 0; i < 3; ++i) all[i] = &rig.join(i);
    poll_living();
  }
  void poll_living() {
    for (uint32_t i = 0; i < 3; ++i) {
      if (i == kDead) continue;
      while (all[i]->messenger.poll(16) > 0) {
      }
      all[i]->messenger.poll(16);  // acknowledges the messages that were drained
    }
  }
  void kill() {
    rig.kill(kDead);
    rig.members().set_state(kDead, MemberState::kQuiet);
  }
  bool is_forgotten() { return keeper.is_forgotten(kDead, rig.members().changed_epoch(kDead)); }

  TestPool pool;
  std::span<std::byte> heap = pool.memory(64 * kKiB);
  GroupRig rig{shape_of(GroupKind::kLazy, 3), &*pool};
  ShmGroupKeeper keeper{rig.segment(), rig.members()};
  Member* all[3] = {};
};

}  // namespace

TEST_GROUP(ShmGroupKeeper){};

TEST(ShmGroupKeeper, ForgetsWhenAllTheLivingHaveAcknowledged) {
  KeeperRig group;
  group.kill();
  CHECK_FALSE(group.is_forgotten());
  group.all[0]->messenger.poll(16);
  CHECK_FALSE(group.is_forgotten());  // member 2 has not acknowledged
  group.poll_living();
  CHECK(group.is_forgotten());
}

TEST(ShmGroupKeeper, WaitsForOneThatIsJoining) {
  KeeperRig group;
  group.kill();
  group.poll_living();
  group.rig.kill(2);
  group.rig.members().set_state(2, MemberState::kQuiet);
  group.rig.members().set_state(2, MemberState::kFree);
  group.rig.segment().reset_member(2);
  CHECK(group.is_forgotten());
  group.rig.members().begin_join(2, 1, MemberName("late"), SegmentRights::all());
  CHECK_FALSE(group.is_forgotten());  // its view of the tables may be an old one
  group.rig.members().set_state(2, MemberState::kAlive);
  group.rig.attach(2).messenger.poll(16);
  CHECK(group.is_forgotten());
}

TEST(ShmGroupKeeper, WaitsForLoansOfTheDead) {
  KeeperRig group;
  const std::span<std::byte> block = group.heap.first(4096);
  Completion returned = {[](Completion&, Outcome) noexcept {}};
  Endpoint& to_third = group.all[kDead]->to(2);
  CHECK(to_third.am_send_loan(1, {}, block, &returned) == SendStatus::kPending);
  group.poll_living();
  LONGS_EQUAL(1, group.all[2]->received.size());
  group.kill();
  group.poll_living();
  CHECK_FALSE(group.is_forgotten());
  group.all[2]->messenger.release(group.all[2]->received[0].loan);
  group.poll_living();
  CHECK(group.is_forgotten());
}

// The messenger's own messages borrow nothing: loans that are sent with them end at once.
TEST(ShmGroupKeeper, WaitsForNoLoanThatNobodyTakes) {
  KeeperRig group;
  Completion returned = {[](Completion&, Outcome) noexcept {}};
  for (const AmId id : {kAskNumberAm, kTellNumberAm}) {
    CHECK(group.all[kDead]->to(2).am_send_loan(id, {}, group.heap.first(64), &returned) ==
          SendStatus::kPending);
  }
  group.poll_living();
  group.kill();
  group.poll_living();
  CHECK(group.is_forgotten());
}

TEST(ShmGroupKeeper, MakesTheNextOnesPartAsNew) {
  KeeperRig group;
  CHECK(group.all[0]->to(kDead).am_send(1, bytes_of("for the former one")) == SendStatus::kDone);
  group.kill();
  group.poll_living();
  group.keeper.reset_member(kDead);
  group.rig.members().set_state(kDead, MemberState::kFree);
  Member& next = group.rig.join(kDead);
  group.poll_living();
  next.messenger.poll(16);
  LONGS_EQUAL(0, next.received.size());
  CHECK(group.all[0]->to(kDead).am_send(1, bytes_of("hello")) == SendStatus::kDone);
  next.messenger.poll(16);
  LONGS_EQUAL(1, next.received.size());
  STRCMP_EQUAL("hello", next.received[0].payload.c_str());
}

TEST(ShmGroupKeeper, WakesWhoSleeps) {
  KeeperRig group;
  group.all[0]->shm.announce_sleep();
  group.all[2]->shm.announce_sleep();
  group.keeper.wake_members();
  for (uint32_t i = 0; i < 3; ++i) {
    LONGS_EQUAL(0, group.rig.segment().wrapper(i).asleep.load());
  }
  group.all[0]->shm.announce_awake();
  group.all[2]->shm.announce_awake();
}
