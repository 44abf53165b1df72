// Members that are stopped between two instructions for any time, and members that are declared
// dead but still run: the others wait for them no longer than configured, and late stores destroy
// nothing.
#include "transport/shm/endpoint/shm_provider.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "platform/clock.h"
#include "tests/support/pool_fixture.h"
#include "tests/transport/shm/group_rig.h"
#include "transport/shm/membership/group_keeper.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(ShmStopped) {
  static constexpr uint32_t kEntryCount = 8;
  // The limit that ends a hang.
  static constexpr uint64_t kBoundNs = 60 * kNsPerSecond;

  static GroupShape small_shape(uint32_t member_count = 3) {
    GroupShape shape = shape_of(GroupKind::kLazy, member_count);
    shape.entry_count = kEntryCount;
    shape.box_count = 0;
    shape.publish_timeout_ms = 5;
    return shape;
  }
  static size_t count_of(const Member& member, PeerEventKind kind) {
    return static_cast<size_t>(
        std::count_if(member.events.begin(), member.events.end(),
                      [&](const PeerEvent& event) { return event.kind == kind; }));
  }
  // Polls like an event loop that never sleeps while there is work. Returns whether `count`
  // messages came.
  static bool hears(Member & member, size_t count) {
    const uint64_t end_ns = monotonic_ns() + kBoundNs;
    while (member.received.size() < count) {
      if (member.messenger.poll(1) == 0 || monotonic_ns() > end_ns) return false;
    }
    return true;
  }
  static void say(Endpoint & to, const std::string& text) {
    CHECK(to.am_send(1, bytes_of(text)) == SendStatus::kDone);
  }
};

TEST(ShmStopped, AClaimInTheWayIsPassedOverInTime) {
  GroupRig rig(small_shape());
  rig.join(0);
  Member& b = rig.join(1);
  Endpoint& c_to_b = rig.join(2).to(1);
  const InboundFifo::Claim claim = rig.claim(1, 0);  // member 0 is stopped here
  say(c_to_b, "behind it");
  const uint64_t begin_ns = monotonic_ns();
  CHECK(hears(b, 1));  // and each poll reports work, because nothing would wake a sleeper
  CHECK(monotonic_ns() - begin_ns >= 5 * kNsPerMs);
  STRCMP_EQUAL("behind it", b.received[0].payload.c_str());
  LONGS_EQUAL(1, b.counters.abandoned.read());
  // Member 0 goes on: it destroys nothing, and learns that its message was not sent.
  CHECK_FALSE(rig.segment().fifo(1).publish(claim, {SlotKind::kInline, 1, 0, 0}));
  b.messenger.poll(8);
  LONGS_EQUAL(1, b.received.size());
}

TEST(ShmStopped, NobodyWaitsAwakeForAClaimThatHoldsUpNobody) {
  GroupRig rig(small_shape());
  rig.join(0);
  Member& b = rig.join(1);
  const InboundFifo::Claim claim = rig.claim(1, 0);
  const uint64_t end_ns = monotonic_ns() + kBoundNs;
  while (b.messenger.poll(8) != 0) CHECK(monotonic_ns() < end_ns);
  CHECK(rig.segment().fifo(1).publish(claim, {SlotKind::kInline, 1, 0, 0}));
  b.messenger.poll(8);
  LONGS_EQUAL(1, b.received.size());
}

// The reader waits for several claims together.
TEST(ShmStopped, SeveralThatAreStoppedHoldUpAsLongAsOne) {
  GroupShape shape = small_shape(5);
  shape.publish_timeout_ms = 400;
  GroupRig rig(shape);
  for (uint32_t i : {0u, 1u, 2u, 3u, 4u}) rig.join(i);
  Member& b = rig.attach(1);
  Endpoint& d = rig.attach(4).to(1);
  for (uint32_t i : {0u, 2u, 3u}) rig.claim(1, i);
  say(d, "behind them");
  const uint64_t begin_ns = monotonic_ns();
  CHECK(hears(b, 1));
  LONGS_EQUAL(3, b.counters.abandoned.read());
  CHECK(monotonic_ns() - begin_ns >= 400 * kNsPerMs);
}

// The slot of a stopped member stays unused, lap after lap, because its stores may still come.
TEST(ShmStopped, NobodyUsesTheSlotOfTheOneThatIsStopped) {
  GroupRig rig(small_shape());
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Endpoint& c_to_b = rig.join(2).to(1);
  const InboundFifo::Claim claim = rig.claim(1, 0);
  for (uint32_t i = 0; i < 4 * kEntryCount; ++i) {
    std::memset(claim.slot->payload, 0xee, kInlineBytesMax);  // a late store of member 0
    say(c_to_b, std::to_string(i));
    CHECK(hears(b, i + 1));
    STRCMP_EQUAL(std::to_string(i).c_str(), b.received[i].payload.c_str());
  }
  LONGS_EQUAL(1, b.counters.abandoned.read());
  // Member 0 goes on and sends again. From the next lap on, the slot is used as before.
  CHECK_FALSE(rig.segment().fifo(1).publish(claim, {SlotKind::kInline, 1, 0, 0}));
  say(a.to(1), "at last");
  b.messenger.poll(8);
  STRCMP_EQUAL("at last", b.received.back().payload.c_str());
  std::vector<const MessageSlot*> used;
  for (uint32_t i = 0; i < 2 * kEntryCount; ++i) {
    const InboundFifo::Claim next = rig.claim(1, 2);
    used.push_back(next.slot);
    CHECK(rig.segment().fifo(1).publish(next, {SlotKind::kInline, 1, 0, 2}));
    b.messenger.poll(8);
  }
  CHECK(std::find(used.begin(), used.end(), claim.slot) != used.end());
}

TEST(ShmStopped, ASendThatWasPassedOverIsSentAgain) {
  GroupRig rig(small_shape());
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Endpoint& a_to_b = a.to(1);
  say(a_to_b, "before");
  std::atomic<bool> is_over{false};
  // The reader retires each claim that it meets, at once or at its second look.
  std::thread reader([&] {
    InboundFifoReader fifo(rig.segment().fifo(1));
    uint64_t ended = 0;
    for (uint64_t tail = 0; !is_over.load();) {
      SlotHeader header;
      fifo.peek(tail, &header);
      if (header.kind == SlotKind::kNone) continue;
      if (is_claim(header, ClaimState::kHeld)) {
        if (ended % 3 != 2 && !fifo.try_end_claim(tail, header, ClaimState::kRetired)) continue;
        if (ended++ % 3 == 2) continue;
      }
      fifo.set_tail(++tail);
    }
  });
  for (int i = 0; i < 20000; ++i) {
    const SendStatus status = a_to_b.am_send(1, bytes_of("again"));
    CHECK(status == SendStatus::kDone || status == SendStatus::kAgain);
  }
  is_over.store(true);
  reader.join();
  (void)b;
}

// A member serves all peers from one stock, which a peer that reads nothing must not use up.
TEST(ShmStopped, OneThatReadsNothingKeepsNobodyElseWaiting) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    TestPool pool;
    GroupShape shape = shape_of(kind, 3);
    shape.box_count = 0;
    shape.loan_count = 16;
    GroupRig rig(shape, &*pool);
    Member& a = rig.join(0);
    Member& stopped = rig.join(1);
    Member& b = rig.join(2);
    Endpoint& a_to_stopped = a.to(1);
    Endpoint& a_to_b = a.to(2);
    // Memory that only its owner can reach, so that the target does the operations.
    std::vector<std::byte> into(2 * shape.eager_bytes), from(into.size());
    const RemoteMemory its = stopped.to(0).expose(into).take();
    const RemoteMemory bs = b.to(0).expose(into).take();
    Counted lent, put;
    const std::string full(shape.eager_bytes, 'x');
    const std::span<std::byte> block = pool.memory(4 * kKiB);
    // Uses up one kind first, and then all that is left of the other kinds.
    for (int first = 0; first < 3; ++first) {
      for (int i = 0; i < 3; ++i) {
        const int what = (first + i) % 3;
        while (what == 0 && a_to_stopped.am_send(1, bytes_of(full)) == SendStatus::kDone) {
        }
        while (what == 1 &&
               a_to_stopped.am_send_loan(1, {}, block, &lent) == SendStatus::kPending) {
        }
        while (what == 2 && a_to_stopped.put(from, its, &put) == SendStatus::kPending) {
        }
        for (uint32_t k = 0; k < 40; ++k) {
          Counted back, done;
          CHECK(a_to_b.am_send(1, bytes_of(full)) == SendStatus::kDone);
          b.messenger.poll(8);
          CHECK(a_to_b.am_send_loan(1, {}, block, &back) == SendStatus::kPending);
          b.messenger.poll(8);
          b.messenger.release(b.received.back().loan);
          b.messenger.poll(8);
          CHECK(a_to_b.put(from, bs, &done) == SendStatus::kPending);
          const uint64_t end_ns = monotonic_ns() + kBoundNs;
          while ((done.count == 0 || back.count == 0) && monotonic_ns() < end_ns) {
            b.messenger.poll(8);
            a.messenger.poll(8);
          }
          LONGS_EQUAL(1, done.count);
          LONGS_EQUAL(1, back.count);
        }
      }
      // The stopped member goes on, and all its loans come back.
      for (int i = 0; i < 2000; ++i) {
        stopped.messenger.poll(64);
        for (auto& received : stopped.received) {
          if (received.loan.is_there()) stopped.messenger.release(received.loan);
        }
        stopped.received.clear();
        a.messenger.poll(64);
      }
      LONGS_EQUAL(0, a.shm.loans_out());
    }
  }
}

// A dead member may still answer an operation that has ended. The memory for its answer is not
// reused.
TEST(ShmStopped, WhereTheDeadMayStillAnswerNobodyElsesMessageLies) {
  TestPool pool;
  GroupShape shape = small_shape();
  shape.eager_count = 2;
  GroupRig rig(shape, &*pool);
  Member& a = rig.join(0);
  Member& stopped = rig.join(1);
  Member& c = rig.join(2);
  std::vector<std::byte> into(64), from(64);
  const RemoteMemory its = stopped.to(0).expose(into).take();
  Counted put;
  CHECK(a.to(1).put(from, its, &put) == SendStatus::kPending);
  rig.members().set_state(1, MemberState::kDead);  // it still runs, and reads the record later
  for (int i = 0; i < 3; ++i) a.messenger.poll(8);
  LONGS_EQUAL(1, put.count);
  CHECK(put.outcome == Outcome::kUnknown);
  const std::span<std::byte> region = rig.segment().eager_region(0);
  for (int i = 0; i < 50; ++i) {
    CHECK(a.to(2).am_send(1, bytes_of(std::string(900, 'x'))) == SendStatus::kDone);
    std::memset(region.data(), 0xee, sizeof(OperationRecord) + from.size());  // its late answer
    c.messenger.poll(8);
    STRCMP_EQUAL(std::string(900, 'x').c_str(), c.received.back().payload.c_str());
  }
  // After the member's end, its record is a piece like any other.
  rig.kill(1);
  for (int i = 0; i < 3; ++i) a.messenger.poll(8);
  bool is_used = false;
  for (int i = 0; i < 50; ++i) {
    CHECK(a.to(2).am_send(1, bytes_of(std::string(900, 'x'))) == SendStatus::kDone);
    is_used = is_used || region[0] == std::byte{'x'};
    c.messenger.poll(8);
  }
  CHECK(is_used);
}

// ---- Declared dead ----

TEST(ShmStopped, WhatComesLateFromTheDeadDestroysNothing) {
  GroupRig rig(small_shape());
  rig.join(0);
  Member& b = rig.join(1);
  Endpoint& c_to_b = rig.join(2).to(1);
  const InboundFifo::Claim claim = rig.claim(1, 0);
  rig.members().set_state(0, MemberState::kDead);  // its connection was closed; it still runs
  for (uint32_t i = 0; i < 3 * kEntryCount; ++i) {
    say(c_to_b, std::to_string(i));
    std::memset(claim.slot->payload, 0xee, kInlineBytesMax);
    CHECK(hears(b, i + 1));
    STRCMP_EQUAL(std::to_string(i).c_str(), b.received[i].payload.c_str());
  }
  CHECK_FALSE(rig.segment().fifo(1).publish(claim, {SlotKind::kInline, 1, 0, 0}));
  say(c_to_b, "on and on");
  b.messenger.poll(8);
  LONGS_EQUAL(3 * kEntryCount + 1, b.received.size());
}

TEST(ShmStopped, TheSlotOfTheDeadIsUsedAgainOnceItHasEnded) {
  GroupRig rig(small_shape());
  rig.join(0);
  Member& b = rig.join(1);
  Endpoint& c_to_b = rig.join(2).to(1);
  const InboundFifo::Claim claim = rig.claim(1, 0);
  rig.members().set_state(0, MemberState::kDead);
  say(c_to_b, "behind it");
  CHECK(hears(b, 1));
  rig.members().set_state(0, MemberState::kQuiet);
  rig.poll();
  const uint64_t word = claim.slot->header.load();
  CHECK(is_claim(unpack_slot(word), ClaimState::kSkipped));
}

// The member that was declared dead learns of it, sends nothing more, and acknowledges. Only then
// its slot goes to another member.
TEST(ShmStopped, TheOneThatIsDeadByNameIsTold) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    TestPool pool;
    GroupRig rig(shape_of(kind, 3), &*pool);
    Member& a = rig.join(0);
    rig.join(1);
    Member& c = rig.join(2);
    Endpoint& a_to_b = a.to(1);
    Endpoint& c_to_a = c.to(0);
    say(a_to_b, "alive");
    Counted returned;
    CHECK(a_to_b.am_send_loan(1, {}, pool.memory(4 * kKiB), &returned) == SendStatus::kPending);
    say(c_to_a, "never read");
    ShmGroupKeeper keeper(rig.segment(), rig.members());
    rig.members().set_state(0, MemberState::kDead);
    const uint64_t epoch = rig.members().changed_epoch(0);
    c.messenger.poll(8);
    CHECK_FALSE(keeper.is_forgotten(1, epoch));  // member 0 may still write to any member
    a.messenger.poll(8);
    LONGS_EQUAL(1, count_of(a, PeerEventKind::kPoolGone));
    LONGS_EQUAL(0, a.received.size());
    CHECK(a_to_b.am_send(1, bytes_of("?")) == SendStatus::kGone);
    LONGS_EQUAL(1, returned.count);
    CHECK(returned.outcome == Outcome::kUnknown);
    CHECK(rig.segment().writes_no_more(0));
    auto again = a.messenger.connect({1});
    CHECK_FALSE(again.ok());
    STRCMP_CONTAINS("cut it off", again.error().answer);
    LONGS_EQUAL(0, a.messenger.poll(8));
  }
}

TEST(ShmStopped, APlaceIsNotFreeWhileOneThatIsDeadByNameMayWriteToIt) {
  GroupRig rig(small_shape());
  Member& a = rig.join(0);
  rig.join(1);
  Member& c = rig.join(2);
  ShmGroupKeeper keeper(rig.segment(), rig.members());
  rig.members().set_state(0, MemberState::kDead);  // stopped, and cut off
  rig.kill(1);
  rig.members().set_state(1, MemberState::kQuiet);
  const uint64_t epoch = rig.members().changed_epoch(1);
  for (int i = 0; i < 3; ++i) c.messenger.poll(8);
  CHECK_FALSE(keeper.is_forgotten(1, epoch));
  a.messenger.poll(8);  // member 0 goes on
  CHECK(keeper.is_forgotten(1, epoch));
}

// A box belongs to one pair until neither member can write to it any more.
TEST(ShmStopped, TheBoxOfTheDeadIsNobodyElses) {
  GroupShape shape = shape_of(GroupKind::kLazy, 3);
  shape.box_count = 1;
  shape.send_threshold = 4;
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Member& c = rig.join(2);
  talk(a, b, 8);
  a.messenger.poll(8);
  talk(a, b, 2);
  CHECK(has_box(a.to(1)));
  Endpoint& a_to_b = a.to(1);
  rig.members().set_state(0, MemberState::kDead);
  b.messenger.poll(8);
  LONGS_EQUAL(0, b.shm.inbound_box_count());
  talk(c, b, 64);
  c.messenger.poll(8);
  CHECK_FALSE(has_box(c.to(1)));
  LONGS_EQUAL(pack_box_owner(1, 0), rig.segment().box_owner(0).load());
  say(a_to_b, "late");  // into the box
  b.received.clear();
  b.messenger.poll(8);
  LONGS_EQUAL(0, b.received.size());
  rig.kill(0);
  rig.bury(0);
  LONGS_EQUAL(0, rig.segment().box_owner(0).load());
}

TEST(ShmStopped, NothingOfTheDeadComesAfterItsEndWasTold) {
  GroupRig rig(small_shape());
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Endpoint& a_to_b = a.to(1);
  say(a_to_b, "before");
  rig.members().set_state(0, MemberState::kDead);
  CHECK(hears(b, 1));
  b.messenger.poll(8);
  LONGS_EQUAL(1, count_of(b, PeerEventKind::kLeft));
  say(a_to_b, "after");  // a has not learned of its death yet
  b.messenger.poll(8);
  b.messenger.poll(8);
  LONGS_EQUAL(1, b.received.size());
}

// ---- Asleep ----

// The owner was killed, so no bell rings.
TEST(ShmStopped, TheEndOfThePoolWakesTheOnesThatSleepForEver) {
  GroupRig rig(small_shape());
  Member& a = rig.join(0);
  std::atomic<bool> is_told{false};
  std::thread sleeper([&] {
    while (count_of(a, PeerEventKind::kPoolGone) == 0) a.messenger.wait(UINT64_MAX);
    is_told.store(true);
  });
  while (FutexBell::state_of(rig.segment().wrapper(0).asleep.load()) != FutexBell::kAsleep) {
    std::this_thread::yield();
  }
  rig.members().release_owner_life();  // like the kernel, without waking a sleeper
  const uint64_t end_ns = monotonic_ns() + kBoundNs;
  while (!is_told.load() && monotonic_ns() < end_ns) std::this_thread::yield();
  CHECK(is_told.load());
  if (!is_told.load()) rig.segment().bell(0).wake_anyway();
  sleeper.join();
}
