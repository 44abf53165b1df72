// Active messages between members of a group, played by one thread.
#include "transport/shm/shm_provider.h"

#include "tests/support/seed.h"
#include "tests/transport/group_rig.h"

#include <random>

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

GroupShape shape_of(GroupKind kind, uint32_t member_count) {
  GroupShape shape;
  shape.kind = kind;
  shape.member_count = member_count;
  shape.box_count = default_box_count(member_count);
  return shape;
}

constexpr GroupKind kKinds[] = {GroupKind::kLazy, GroupKind::kMesh, GroupKind::kExchange};

}  // namespace

TEST_GROUP(ShmProvider){};

TEST(ShmProvider, DeliversWhatWasSent) {
  for (GroupKind kind : kKinds) {
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
  for (GroupKind kind : kKinds) {
    GroupRig rig(shape_of(kind, 3 - (kind == GroupKind::kExchange)));
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
    if (kind == GroupKind::kLazy) CHECK(static_cast<ShmEndpoint&>(to_b).has_box());
  }
}

// The reader looks at the members table when a poll begins; what it reads then may be newer.
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
  reader.messenger.set_handler(2, {[](void* context, const Message&) noexcept {
                                     GroupRig& rig = static_cast<World*>(context)->rig;
                                     Member& again = rig.join(1);
                                     BP_ASSERT(again.to(0).am_send(1, bytes_of("second")) ==
                                               SendStatus::kDone);
                                   },
                                   &world});
  CHECK(reader.messenger.poll(16) > 0);
  world.rig.kill(1);
  reader.messenger.poll(16);
  world.rig.members().set_state(1, MemberState::kQuiet);
  reader.messenger.poll(16);
  world.rig.segment().reset_member(1);
  world.rig.members().set_state(1, MemberState::kFree);
  reader.messenger.poll(16);
  CHECK(helper.to(0).am_send(2, bytes_of("now")) == SendStatus::kDone);
  reader.messenger.poll(16);
  LONGS_EQUAL(2, world.generations.size());
  LONGS_EQUAL(1, world.generations[0]);
  LONGS_EQUAL(2, world.generations[1]);
}

namespace {

// Member 1 has the only box of member 0, which wants it back: member 2 sends to it all the time.
struct WantedBox {
  GroupRig rig;
  Member& receiver;
  Member& sender;
  Member& rival;

  static GroupShape shape() {
    GroupShape shape = shape_of(GroupKind::kLazy, 3);
    shape.box_bytes = 4096;  // 16 slots: three of them may be read and not acknowledged
    shape.box_count = 4;
    shape.box_count_max = 1;
    shape.send_threshold = 1;
    return shape;
  }
  WantedBox()
      : rig(shape()), receiver(rig.join(0)), sender(rig.join(1)), rival(rig.join(2)) {
    send(sender, "to have a box");
    sender.messenger.poll(16);
    CHECK(static_cast<ShmEndpoint&>(sender.to(0)).has_box());
    // The 65th without one through the box makes it idle, and the next makes the receiver ask.
    for (int i = 0; i < 70; ++i) send(rival, "rival");
  }
  void send(Member& from, const char* text) {
    CHECK(from.to(0).am_send(1, bytes_of(text)) == SendStatus::kDone);
    receiver.messenger.poll(16);
  }
};

}  // namespace

TEST(ShmProvider, ABoxComesBackThoughItsSenderSendsNoMore) {
  WantedBox world;
  world.send(world.sender, "crosses the request");
  world.sender.messenger.poll(16);  // the box is wanted: it is given back when it is empty
  world.receiver.messenger.poll(16);
  LONGS_EQUAL(1, world.receiver.counters.boxes_returned.read());
}

TEST(ShmProvider, LosesNothingOfADeadSenderThatHadGivenItsBoxBack) {
  WantedBox world;
  world.sender.messenger.poll(16);
  CHECK_FALSE(static_cast<ShmEndpoint&>(world.sender.to(0)).has_box());
  CHECK(world.sender.to(0).am_send(1, bytes_of("last")) == SendStatus::kDone);
  world.rig.kill(1);
  world.receiver.messenger.poll(16);
  STRCMP_EQUAL("last", world.receiver.received.back().payload.c_str());
  LONGS_EQUAL(0, world.receiver.counters.cut_off.read());
}
