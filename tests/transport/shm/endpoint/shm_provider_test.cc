// Active messages between members of a group. One thread plays all members.
#include "transport/shm/endpoint/shm_provider.h"

#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/death_test.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/seed.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(ShmProvider){};

TEST(ShmProvider, DeliversWhatWasSent) {
  for (GroupKind kind : kGroupKinds) {
    GroupRig rig(shape_of(kind, 2));
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    CHECK(a.to(1).am_send(7, bytes_of("hello")) == SendStatus::kDone);
    CHECK(b.messenger.poll(16) > 0);
    LONGS_EQUAL(1, b.received.size());
    LONGS_EQUAL(0, b.received[0].from);
    LONGS_EQUAL(7, b.received[0].id);
    STRCMP_EQUAL("hello", b.received[0].payload.c_str());
  }
}

TEST(ShmProvider, DeliversEveryLengthInOrder) {
  Seed seed;
  std::mt19937_64 random(seed.value());
  for (GroupKind kind : kGroupKinds) {
    GroupRig rig(shape_of(kind, 3));
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    Endpoint& to_b = a.to(1);
    std::vector<std::string> sent;
    size_t checked = 0;
    for (int i = 0; i < 20000; ++i) {
      const uint32_t limit = to_b.limits().am_bytes_max;
      const auto bytes = random() % 4 == 0 ? random() % (limit + 1) : random() % 80;
      std::string payload(bytes, static_cast<char>('a' + i % 26));
      const SendStatus status = to_b.am_send(static_cast<AmId>(i % 100), bytes_of(payload));
      if (status == SendStatus::kDone) sent.push_back(payload);
      else CHECK(status == SendStatus::kAgain);
      if (status == SendStatus::kAgain || random() % 8 == 0) {
        a.messenger.poll(16);
        b.messenger.poll(static_cast<uint32_t>(random() % 16 + 1));
      }
    }
    while (b.messenger.poll(64) > 0) {
    }
    LONGS_EQUAL_TEXT(sent.size(), b.received.size(), seed.text());
    for (; checked < sent.size(); ++checked) {
      if (sent[checked] != b.received[checked].payload) FAIL(seed.text());
    }
    if (kind == GroupKind::kLazy) CHECK(has_box(to_b));
  }
}

// The reader reads the members table when a poll begins. A message in that poll may be newer.
TEST(ShmProvider, TellsWhichGenerationAMessageIsOf) {
  struct World {
    GroupRig rig{shape_of(GroupKind::kLazy, 3)};
    std::vector<uint64_t> generations;
  } world;
  Member& reader = world.rig.join(0);
  CHECK(world.rig.join(1).to(0).am_send(1, bytes_of("first")) == SendStatus::kDone);
  Member& helper = world.rig.join(2);
  const auto note = [](void* context, const Message& message) noexcept {
    static_cast<World*>(context)->generations.push_back(
        static_cast<ShmEndpoint&>(message.from).generation());
  };
  reader.messenger.set_handler(1, {note, &world});
  reader.messenger.set_handler(
      2, {[](void* context, const Message&) noexcept {
            GroupRig& rig = static_cast<World*>(context)->rig;
            Member& again = rig.join(1);
            BP_ASSERT(again.to(0).am_send(1, bytes_of("second")) == SendStatus::kDone);
          },
          &world});
  CHECK(reader.messenger.poll(16) > 0);
  world.rig.bury(1);
  CHECK(helper.to(0).am_send(2, bytes_of("now")) == SendStatus::kDone);
  reader.messenger.poll(16);
  LONGS_EQUAL(2, world.generations.size());
  LONGS_EQUAL(1, world.generations[0]);
  LONGS_EQUAL(2, world.generations[1]);
}

TEST(ShmProvider, ManyReturnedLoansEndInPollsThatFollowOneAnother) {
  constexpr uint32_t kCount = 80;
  TestPool pool;
  const std::span<std::byte> block = pool.memory(64 * kKiB);
  GroupRig rig(shape_of(GroupKind::kLazy, 2), &*pool);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Counted back;
  for (uint32_t i = 0; i < kCount; ++i) {
    while (a.to(1).am_send_loan(1, {}, block, &back) == SendStatus::kAgain) b.messenger.poll(64);
  }
  while (b.received.size() < kCount) b.messenger.poll(64);
  for (const auto& one : b.received) b.messenger.release(one.loan);
  b.messenger.poll(64);
  while (back.count == 0) a.messenger.poll(64);
  for (uint32_t i = 0; i < kCount / 32; ++i) a.messenger.poll(64);
  LONGS_EQUAL(kCount, back.count);
}

#if BP_DEBUG
namespace {

// Lets another thread use a member during that member's poll.
struct ShmIntruder {
  Member* member = nullptr;
  Endpoint* endpoint = nullptr;
  std::vector<Ended> ends;

  template <typename Body>
  void try_to(Body&& body) {
    ends.push_back(run_forked(std::forward<Body>(body)));
  }
  void intrude() {
    try_to([this] { endpoint->am_send(1, {}); });
    try_to([this] { endpoint->am_send_loan(1, {}, {}, nullptr); });
    try_to([this] { endpoint->get({}, {}, nullptr); });
    try_to([this] { endpoint->flush(nullptr); });
    try_to([this] { (void)endpoint->expose({}); });
    try_to([this] { endpoint->withdraw({}); });
    try_to([this] { (void)endpoint->has_room(); });
    try_to([this] { (void)member->shm.connect({0}); });
    try_to([this] { member->shm.release({}); });
    try_to([this] { member->shm.raise_bell(); });
    try_to([this] { member->shm.announce_awake(); });
    try_to([this] { member->shm.sleep(0); });
  }
};

}  // namespace

TEST(ShmProvider, WhileItPollsItIsThatThreadsAlone) {
  ShmIntruder intruder;
  GroupRig rig(shape_of(GroupKind::kLazy, 2));
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  intruder.member = &b;
  intruder.endpoint = &b.to(0);
  b.messenger.set_handler(1, {[](void* context, const Message&) noexcept {
                                auto& self = *static_cast<ShmIntruder*>(context);
                                std::thread([&self] { self.intrude(); }).join();
                              },
                              &intruder});
  CHECK(a.to(1).am_send(1, {}) == SendStatus::kDone);
  LONGS_EQUAL(1, b.messenger.poll(1));
  LONGS_EQUAL(12, intruder.ends.size());
  for (size_t i = 0; i < intruder.ends.size(); ++i) {
    const char* words = i < 9 ? "was called on another thread" : "is_own_thread()";
    check_died(intruder.ends[i], words, __FILE__, __LINE__);
  }
}

TEST(ShmProvider, ALoanThatIsReleasedTwiceIsNoticedAtOnce) {
  TestPool pool;
  GroupRig rig(shape_of(GroupKind::kLazy, 2), &*pool);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Counted back;
  CHECK(a.to(1).am_send_loan(1, {}, pool.memory(64 * kKiB), &back) == SendStatus::kPending);
  b.messenger.poll(16);
  LONGS_EQUAL(1, b.received.size());
  const Loan loan = b.received[0].loan;
  BP_CHECK_DIES("is_valid()", {
    b.messenger.release(loan);
    b.messenger.release(loan);
  });
}
#endif
