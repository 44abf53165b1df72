// Death, departure, return and the end of the pool, as the other members see them.
#include "transport/shm/endpoint/shm_provider.h"

#include "platform/clock.h"
#include "tests/support/patience.h"
#include "tests/support/pool_fixture.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

uint32_t count_of(const Member& member, PeerEventKind kind) {
  uint32_t count = 0;
  for (const PeerEvent& event : member.events) count += event.kind == kind;
  return count;
}

}  // namespace

TEST_GROUP(ShmMembers) { TestPool pool; };

TEST(ShmMembers, TheDeadAreHeardToTheLastMessage) {
  for (GroupKind kind : kGroupKinds) {
    for (uint32_t before : {0u, 40u}) {  // after 40 messages there is a box
      GroupRig rig(shape_of(kind, 3));
      Member& a = rig.join(0);
      Member& b = rig.join(1);
      for (uint32_t i = 0; i < before; ++i) {
        CHECK(a.to(1).am_send(1, bytes_of("before")) == SendStatus::kDone);
        b.messenger.poll(8);
        a.messenger.poll(8);
      }
      CHECK(a.to(1).am_send(1, bytes_of("short")) == SendStatus::kDone);
      CHECK(a.to(1).am_send(1, bytes_of(std::string(1500, 'l'))) == SendStatus::kDone);
      CHECK(a.to(1).am_send(1, bytes_of("last")) == SendStatus::kDone);
      rig.kill(0);
      for (int i = 0; i < 20; ++i) {
        b.messenger.poll(1);
        if (count_of(b, PeerEventKind::kLeft) > 0) LONGS_EQUAL(before + 3, b.received.size());
      }
      LONGS_EQUAL(before + 3, b.received.size());
      STRCMP_EQUAL("last", b.received.back().payload.c_str());
      LONGS_EQUAL(1, count_of(b, PeerEventKind::kLeft));
      LONGS_EQUAL(0, b.events.back().member);
      LONGS_EQUAL(1, b.events.back().generation);
      LONGS_EQUAL(rig.members().epoch(), rig.segment().wrapper(1).acknowledged_epoch.load());
    }
  }
}

TEST(ShmMembers, TheDeadCannotBeSentTo) {
  for (GroupKind kind : kGroupKinds) {
    GroupRig rig(shape_of(kind, 3));
    Member& a = rig.join(0);
    rig.join(1);
    Endpoint& to_b = a.to(1);
    rig.kill(1);
    a.messenger.poll(8);
    CHECK(to_b.am_send(1, bytes_of("?")) == SendStatus::kGone);
    CHECK(to_b.flush(nullptr) == SendStatus::kGone);
    auto again = a.messenger.connect({1});
    CHECK_FALSE(again.ok());
    STRCMP_CONTAINS("dead", again.error().answer);
  }
}

// A sender that waits for space goes on, and learns from its next message that the peer is gone.
TEST(ShmMembers, TheDeadHaveRoom) {
  for (GroupKind kind : kGroupKinds) {
    GroupRig rig(shape_of(kind, 3));
    Member& a = rig.join(0);
    rig.join(1);
    Endpoint& to_b = a.to(1);
    while (to_b.am_send(1, bytes_of("unread")) == SendStatus::kDone) continue;
    CHECK_FALSE(to_b.has_room());
    rig.kill(1);
    a.messenger.poll(8);
    CHECK(to_b.has_room());
  }
}

TEST(ShmMembers, WhoJoinedAndDiedBetweenTwoPollsIsHeardAndThenGone) {
  for (GroupKind kind : kGroupKinds) {
    GroupRig rig(shape_of(kind, 3));
    Member& b = rig.join(1);
    b.messenger.poll(8);
    Member& a = rig.join(0);
    Endpoint& to_a = b.to(0);
    for (int i = 0; i < 5; ++i) CHECK(a.to(1).am_send(1, bytes_of("brief")) == SendStatus::kDone);
    rig.kill(0);
    for (int i = 0; i < 10; ++i) b.messenger.poll(1);
    LONGS_EQUAL(5, b.received.size());
    LONGS_EQUAL(1, count_of(b, PeerEventKind::kLeft));
    CHECK(to_a.am_send(1, bytes_of("?")) == SendStatus::kGone);
  }
}

// The writer is killed at each step between its claim and its publication.
TEST(ShmMembers, ATornSlotIsPassedOverWhenItsWriterIsDead) {
  for (bool has_moved_the_counter : {false, true}) {
    GroupRig rig(shape_of(GroupKind::kLazy, 3));
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    Member& c = rig.join(2);
    CHECK(a.to(1).am_send(1, bytes_of("whole")) == SendStatus::kDone);
    InboundFifo fifo = rig.segment().fifo(1);
    if (has_moved_the_counter) {
      rig.claim(1, 0);
    } else {
      SlotHeader header;
      fifo.peek(1, &header).header.store(pack_slot(1, {SlotKind::kClaimed, 0, 0, 0}));
    }
    CHECK(c.to(1).am_send(1, bytes_of("after")) == SendStatus::kDone);
    b.messenger.poll(8);
    LONGS_EQUAL(1, b.received.size());  // "after" waits: the slot may still be published
    rig.kill(0);
    b.messenger.poll(8);
    LONGS_EQUAL(2, b.received.size());
    STRCMP_EQUAL("after", b.received[1].payload.c_str());
    LONGS_EQUAL(1, b.counters.abandoned.read());
    LONGS_EQUAL(1, count_of(b, PeerEventKind::kLeft));
  }
}

TEST(ShmMembers, ATornSlotAtTheVeryEndHoldsTheAcknowledgementUntilItIsPassed) {
  GroupRig rig(shape_of(GroupKind::kLazy, 3));
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  b.messenger.poll(8);
  for (int i = 0; i < 5; ++i) CHECK(a.to(1).am_send(1, bytes_of("x")) == SendStatus::kDone);
  SlotHeader header;
  rig.segment().fifo(1).peek(5, &header).header.store(pack_slot(1, {SlotKind::kClaimed, 0, 0, 0}));
  rig.kill(0);
  for (int i = 0; i < 5; ++i) {
    b.messenger.poll(1);
    CHECK(rig.segment().wrapper(1).acknowledged_epoch.load() < rig.members().epoch());
  }
  b.messenger.poll(1);
  LONGS_EQUAL(5, b.received.size());
  LONGS_EQUAL(rig.members().epoch(), rig.segment().wrapper(1).acknowledged_epoch.load());
}

TEST(ShmMembers, LoansOfTheDeadComeBackOnlyWhenTheyAreQuiet) {
  const std::span<std::byte> block = pool.memory(64 * kKiB);
  for (GroupKind kind : kGroupKinds) {
    GroupRig rig(shape_of(kind, 3), &*pool);
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    Counted back;
    CHECK(a.to(1).am_send_loan(1, {}, block, &back) == SendStatus::kPending);
    b.messenger.poll(8);
    rig.kill(1);
    for (int i = 0; i < 600; ++i) a.messenger.poll(8);
    LONGS_EQUAL(0, back.count);
    rig.members().set_state(1, MemberState::kQuiet);
    a.messenger.poll(8);
    LONGS_EQUAL(1, back.count);
    CHECK(back.outcome == Outcome::kUnknown);
    LONGS_EQUAL(0, a.shm.loans_out());
  }
}

TEST(ShmMembers, LoansThatTheDeadHadReturnedAreDone) {
  const std::span<std::byte> block = pool.memory(64 * kKiB);
  for (GroupKind kind : kGroupKinds) {
    GroupRig rig(shape_of(kind, 3), &*pool);
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    Counted back;
    CHECK(a.to(1).am_send_loan(1, {}, block, &back) == SendStatus::kPending);
    b.messenger.poll(8);
    b.messenger.release(b.received[0].loan);
    b.messenger.poll(8);
    rig.kill(1);
    rig.members().set_state(1, MemberState::kQuiet);
    a.messenger.poll(8);
    LONGS_EQUAL(1, back.count);
    CHECK(back.outcome == Outcome::kDone);
  }
}

TEST(ShmMembers, WhoseLoansAreHeldIsSaidUntilTheyAreReleased) {
  const std::span<std::byte> block = pool.memory(64 * kKiB);
  for (GroupKind kind : kGroupKinds) {
    GroupRig rig(shape_of(kind, 3), &*pool);
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    Counted back;
    for (size_t i = 0; i < 2; ++i) {
      CHECK(a.to(1).am_send_loan(1, {}, block.subspan(i * 64, 64), &back) == SendStatus::kPending);
    }
    rig.kill(0);
    b.messenger.poll(8);
    const auto held = [&] { return rig.segment().held_loans(1)[0].load(); };
    LONGS_EQUAL(2, b.received.size());
    LONGS_EQUAL(1, held());
    b.messenger.release(b.received[0].loan);
    b.messenger.poll(8);
    LONGS_EQUAL(1, held());
    b.messenger.release(b.received[1].loan);
    b.messenger.poll(8);
    LONGS_EQUAL(0, held());
  }
}

TEST(ShmMembers, WhoComesAfterTheDeadStartsClean) {
  for (GroupKind kind : kGroupKinds) {
    GroupRig rig(shape_of(kind, 3));
    Member& b = rig.join(1);
    for (uint32_t generation = 1; generation <= 4; ++generation) {
      Member& a = rig.join(0);
      b.messenger.poll(8);
      LONGS_EQUAL(generation, b.events.back().generation);
      CHECK(b.events.back().kind == PeerEventKind::kJoined);
      // The same number each time: a count of the previous member's messages would seem to be
      // complete.
      b.received.clear();
      for (int i = 0; i < 5; ++i) {
        CHECK(a.to(1).am_send(1, bytes_of(std::string(100, static_cast<char>('0' + i)))) ==
              SendStatus::kDone);
      }
      b.messenger.poll(8);
      LONGS_EQUAL(5, b.received.size());
      // Fills the queue. The next member must have space all the same.
      int sent = 0;
      for (; b.to(0).am_send(1, bytes_of(std::string(1000, 'u'))) == SendStatus::kDone; ++sent) {
      }
      CHECK(sent > 0);
      if (generation == 1) {
        a.messenger.poll(64);
        CHECK(!a.received.empty());
      }
      rig.bury(0);
      LONGS_EQUAL(0, b.counters.cut_off.read());
    }
  }
}

TEST(ShmMembers, AnEndpointWhoseBoxIsWantedBackWritesNothingForTheNextOne) {
  GroupShape shape = shape_of(GroupKind::kLazy, 3);
  shape.box_count_max = 1;
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Member& c = rig.join(2);
  talk(a, b, 16);
  a.messenger.poll(8);
  CHECK(has_box(a.to(1)));
  talk(c, b, 66 * 16);
  // b wants the box back, but a has just used it again. b reads that message, and dies.
  CHECK(a.to(1).am_send(1, bytes_of("unread")) == SendStatus::kDone);
  a.messenger.poll(8);
  b.messenger.poll(8);
  STRCMP_EQUAL("unread", b.received.back().payload.c_str());
  const uint64_t claims = rig.segment().fifo(1).claims();
  rig.kill(1);
  rig.poll();
  LONGS_EQUAL(claims, rig.segment().fifo(1).claims());
  rig.bury(1);
  Member& next = rig.join(1);
  for (int i = 0; i < 10; ++i) rig.poll();
  LONGS_EQUAL(0, next.counters.cut_off.read());
  LONGS_EQUAL(0, rig.segment().fifo(1).claims());
  CHECK(a.to(1).am_send(1, bytes_of("hello")) == SendStatus::kDone);
  next.messenger.poll(8);
  LONGS_EQUAL(1, next.received.size());
}

// A new member takes the slot of a dead one and sends a message, while a poll runs handlers.
TEST(ShmMembers, WhoJoinsDuringAPollIsHeardAsItself) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    GroupRig rig(shape_of(kind, 3));
    Member& a = rig.join(1);
    Member& b = rig.join(0);
    Member& c = rig.join(2);
    for (int i = 0; i < 5; ++i) CHECK(c.to(0).am_send(1, bytes_of("old")) == SendStatus::kDone);
    b.messenger.poll(64);
    rig.bury(2);
    b.messenger.set_handler(250, {[](void* context, const Message&) noexcept {
                                    auto& group = *static_cast<GroupRig*>(context);
                                    group.join(2).to(0).am_send(251, bytes_of("new"));
                                  },
                                  &rig});
    SendStatus answered = SendStatus::kGone;
    b.messenger.set_handler(251, {[](void* context, const Message& message) noexcept {
                                    *static_cast<SendStatus*>(context) =
                                        message.from.am_send(1, bytes_of("welcome"));
                                  },
                                  &answered});
    CHECK(a.to(0).am_send(250, {}) == SendStatus::kDone);
    b.messenger.poll(64);
    b.messenger.poll(64);
    CHECK(answered == SendStatus::kDone);
    LONGS_EQUAL(0, b.counters.cut_off.read());
    CHECK(b.to(2).am_send(1, bytes_of("answer")) == SendStatus::kDone);
  }
}

TEST(ShmMembers, TheEndOfThePoolIsOneEventAndNobodyIsSentTo) {
  for (GroupKind kind : kGroupKinds) {
    GroupRig rig(shape_of(kind, 3));
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    CHECK(a.to(1).am_send(1, bytes_of("published")) == SendStatus::kDone);
    Endpoint& to_a = b.to(0);
    rig.members().release_owner_life();
    for (int i = 0; i < 5; ++i) b.messenger.poll(8);
    LONGS_EQUAL(1, b.received.size());
    LONGS_EQUAL(1, count_of(b, PeerEventKind::kPoolGone));
    CHECK(to_a.am_send(1, bytes_of("?")) == SendStatus::kGone);
    CHECK(static_cast<ShmEndpoint&>(to_a).am_send(1, {}) == SendStatus::kGone);
    auto again = b.messenger.connect({0});
    CHECK_FALSE(again.ok());
    STRCMP_CONTAINS("owner of the pool", again.error().answer);
  }
}

// The owner no longer reports deaths. A timeout decides, once for all slots that are claimed by
// then.
TEST(ShmMembers, ATornSlotIsPassedOverAfterTheEndOfThePool) {
  GroupRig rig(shape_of(GroupKind::kLazy, 3));
  rig.join(0);
  Member& b = rig.join(1);
  Endpoint& to_b = rig.join(2).to(1);
  rig.claim(1, 0);
  CHECK(to_b.am_send(1, bytes_of("between")) == SendStatus::kDone);
  const InboundFifo::Claim late = rig.claim(1, 0);
  CHECK(to_b.am_send(1, bytes_of("last")) == SendStatus::kDone);
  rig.members().release_owner_life();
  const uint64_t begin_ns = monotonic_ns();
  do {
    // The poll must report work: nothing would wake a sleeper.
    CHECK(b.messenger.poll(1) > 0);
  } while (b.received.empty());
  CHECK(monotonic_ns() - begin_ns > 40 * kNsPerMs);
  // The writer is alive after all, and in time: its second claim has not been checked yet.
  CHECK(rig.segment().fifo(1).publish(late, {SlotKind::kInline, 1, 0, 0}));
  while (b.messenger.poll(8) > 0) {
  }
  LONGS_EQUAL(3, b.received.size());
  STRCMP_EQUAL("between", b.received[0].payload.c_str());
  STRCMP_EQUAL("", b.received[1].payload.c_str());
  STRCMP_EQUAL("last", b.received[2].payload.c_str());
  LONGS_EQUAL(1, b.counters.abandoned.read());
  LONGS_EQUAL(1, count_of(b, PeerEventKind::kPoolGone));
}

TEST(ShmMembers, SlotsThatAreClaimedWhenOneIsWaitedForAreWaitedForTogether) {
  GroupRig rig(shape_of(GroupKind::kLazy, 3));
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  CHECK(a.to(1).am_send(1, bytes_of("x")) == SendStatus::kDone);
  for (int i = 0; i < 10; ++i) rig.claim(1, 0);
  rig.members().release_owner_life();
  CHECK(eventually([&] {
    b.messenger.poll(8);
    return b.counters.abandoned.read() > 0;
  }));
  for (int i = 0; i < 4; ++i) b.messenger.poll(8);  // too few to wait for each slot separately
  LONGS_EQUAL(10, b.counters.abandoned.read());
}

// The owner's control thread changes an entry, and then the epoch. A poll that has read the old
// epoch still sees the new entry, and may deliver the new member's messages.
TEST(ShmMembers, WhoJoinsAnExchangeWithinAPollOfTheOwnerIsHeardOnce) {
  for (bool was_seen_joining : {true, false}) {
    GroupRig rig(shape_of(GroupKind::kExchange, 2));
    rig.join(1);  // an earlier member 1, before the owner's member joined
    rig.bury(1);
    Member& owner = rig.join(0);
    owner.messenger.poll(8);
    if (was_seen_joining) {
      rig.members().begin_join(1, 1001, MemberName("member"), SegmentRights::all());
      owner.messenger.poll(8);
    }
    const uint64_t epoch = rig.members().epoch();
    rig.entry(1).word.store(2 << 8 | static_cast<uint8_t>(MemberState::kAlive));
    Member& joiner = rig.attach(1);
    CHECK(joiner.to(0).am_send(1, bytes_of("first")) == SendStatus::kDone);
    owner.messenger.poll(8);
    LONGS_EQUAL(epoch, rig.members().epoch());
    LONGS_EQUAL(was_seen_joining ? 1 : 0, owner.received.size());
    rig.members().set_state(1, MemberState::kAlive);  // now the epoch moves as well
    owner.messenger.poll(8);
    CHECK(joiner.to(0).am_send(1, bytes_of("second")) == SendStatus::kDone);
    owner.messenger.poll(8);
    LONGS_EQUAL(2, owner.received.size());
    STRCMP_EQUAL("second", owner.received[1].payload.c_str());
    LONGS_EQUAL(1, count_of(owner, PeerEventKind::kJoined));
    LONGS_EQUAL(2, owner.events.back().generation);
    CHECK(owner.to(1).am_send(1, bytes_of("answer")) == SendStatus::kDone);
    rig.poll();
    LONGS_EQUAL(1, joiner.received.size());
  }
}
