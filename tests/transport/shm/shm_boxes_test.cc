// Fast boxes: the sender that gets a box, the moment of the grant, and the return of the box.
#include "transport/shm/endpoint/shm_provider.h"

#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

GroupShape boxes_for(uint32_t member_count, uint32_t box_count_max = 32) {
  GroupShape shape = shape_of(GroupKind::kLazy, member_count);
  shape.box_count_max = box_count_max;
  return shape;
}

// b grants its only box to a, which then falls idle. c sends until b wants the box back, and has
// the box afterwards.
void move_box(Member& a, Member& b, Member& c, const GroupShape& shape) {
  talk(a, b, shape.send_threshold);
  a.messenger.poll(64);
  CHECK(has_box(a.to(1)));
  talk(c, b, 66 * shape.send_threshold);
  a.messenger.poll(64);  // sees that the box is wanted, and closes it
  b.messenger.poll(64);
  CHECK_FALSE(has_box(a.to(1)));
  talk(c, b, 2 * shape.send_threshold);
  c.messenger.poll(64);
  CHECK(has_box(c.to(1)));
}

}  // namespace

TEST_GROUP(ShmBoxes){};

TEST(ShmBoxes, IsGrantedAfterExactlyAsManySendsAsTheThreshold) {
  for (uint32_t threshold : {1u, 2u, 16u, 100u}) {
    GroupShape shape = boxes_for(2);
    shape.send_threshold = threshold;
    GroupRig rig(shape);
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    talk(a, b, threshold - 1);
    a.messenger.poll(64);
    LONGS_EQUAL(0, b.counters.boxes_granted.read());
    CHECK_FALSE(has_box(a.to(1)));
    talk(a, b, 1);
    LONGS_EQUAL(1, b.counters.boxes_granted.read());
    a.messenger.poll(64);
    CHECK(has_box(a.to(1)));
    talk(a, b, 3 * threshold);
    LONGS_EQUAL(1, b.counters.boxes_granted.read());
    LONGS_EQUAL(4 * threshold, b.received.size());
  }
}

TEST(ShmBoxes, IsUsedOnlyWhenTheFifoWasRead) {
  const GroupShape shape = boxes_for(2);
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  talk(a, b, shape.send_threshold);
  CHECK(a.to(1).am_send(1, bytes_of("still by the FIFO")) == SendStatus::kDone);
  a.messenger.poll(64);
  CHECK_FALSE(has_box(a.to(1)));
  CHECK(a.to(1).am_send(1, bytes_of("this as well")) == SendStatus::kDone);
  b.messenger.poll(64);
  CHECK(a.to(1).am_send(1, bytes_of("by the box")) == SendStatus::kDone);
  CHECK(has_box(a.to(1)));
  b.messenger.poll(64);
  STRCMP_EQUAL("by the box", b.received.back().payload.c_str());
  STRCMP_EQUAL("this as well", b.received[b.received.size() - 2].payload.c_str());
}

TEST(ShmBoxes, AReceiverGivesSoManyAndNoMore) {
  const GroupShape shape = boxes_for(6, 2);
  GroupRig rig(shape);
  Member& b = rig.join(0);
  for (uint32_t i = 1; i < 6; ++i) talk(rig.join(i), b, 3 * shape.send_threshold);
  LONGS_EQUAL(2, b.shm.inbound_box_count());
  LONGS_EQUAL(2, b.counters.boxes_granted.read());
  LONGS_EQUAL(5 * 3 * shape.send_threshold, b.received.size());
}

TEST(ShmBoxes, TheGroupHasSoManyAndNoMore) {
  GroupShape shape = boxes_for(4);
  shape.box_count = 1;
  GroupRig rig(shape);
  Member* members[4] = {};
  for (uint32_t i = 0; i < 4; ++i) members[i] = &rig.join(i);
  for (uint32_t to = 0; to < 4; ++to) {
    talk(*members[(to + 1) % 4], *members[to], 3 * shape.send_threshold);
  }
  uint64_t granted = 0;
  for (Member* member : members) granted += member->counters.boxes_granted.read();
  LONGS_EQUAL(1, granted);
}

TEST(ShmBoxes, NoBoxesNoGrants) {
  for (uint32_t limit : {0u, 32u}) {
    GroupShape shape = boxes_for(2, limit);
    if (limit != 0) shape.box_count = 0;
    GroupRig rig(shape);
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    talk(a, b, 500);
    a.messenger.poll(64);
    CHECK_FALSE(has_box(a.to(1)));
    LONGS_EQUAL(500, b.received.size());
  }
}

TEST(ShmBoxes, AnIdleBoxGoesToAnotherPair) {
  const GroupShape shape = boxes_for(3, 1);
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Member& c = rig.join(2);
  move_box(a, b, c, shape);
  LONGS_EQUAL(1, b.counters.boxes_returned.read());
  LONGS_EQUAL(2, b.counters.boxes_granted.read());
  LONGS_EQUAL(1, b.shm.inbound_box_count());
  b.received.clear();
  talk(a, b, 3);
  LONGS_EQUAL(3, b.received.size());
}

TEST(ShmBoxes, ABoxInUseIsNotTakenAway) {
  const GroupShape shape = boxes_for(3, 1);
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Member& c = rig.join(2);
  talk(a, b, shape.send_threshold);
  a.messenger.poll(64);
  for (uint32_t i = 0; i < 200; ++i) {
    talk(c, b, shape.send_threshold);
    talk(a, b, 1);
    a.messenger.poll(64);
  }
  CHECK(has_box(a.to(1)));
  LONGS_EQUAL(0, b.counters.boxes_returned.read());
}

// A piece names its message by the number in the box. In a new box the numbers begin again.
TEST(ShmBoxes, WhatWentThroughAnEarlierBoxIsKnownToBeConsumed) {
  GroupShape shape = boxes_for(3, 1);
  shape.box_bytes = 1024;  // an area of 704 bytes
  shape.eager_bytes = 1000;
  shape.eager_count = 1;
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Member& c = rig.join(2);
  const std::string longest(1000, 'x');
  talk(a, b, shape.send_threshold);
  a.messenger.poll(64);
  talk(a, b, 500);
  CHECK(a.to(1).am_send(1, bytes_of(longest)) == SendStatus::kDone);  // takes the whole region
  b.messenger.poll(64);
  move_box(a, b, c, shape);
  // Moves the box back to a.
  talk(a, b, 66 * shape.send_threshold);
  c.messenger.poll(64);
  b.messenger.poll(64);
  talk(a, b, 2 * shape.send_threshold);
  a.messenger.poll(64);
  CHECK(has_box(a.to(1)));
  CHECK(a.to(1).am_send(1, bytes_of(longest)) == SendStatus::kDone);
}

TEST(ShmBoxes, ADeadSendersBoxIsFreeAgain) {
  const GroupShape shape = boxes_for(3, 1);
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Member& c = rig.join(2);
  talk(a, b, shape.send_threshold);
  a.messenger.poll(64);
  CHECK(a.to(1).am_send(1, bytes_of("last")) == SendStatus::kDone);
  CHECK(has_box(a.to(1)));
  rig.kill(0);
  b.messenger.poll(64);
  STRCMP_EQUAL("last", b.received.back().payload.c_str());
  LONGS_EQUAL(0, b.shm.inbound_box_count());
  for (uint32_t i = 0; i < shape.box_count; ++i) LONGS_EQUAL(0, rig.segment().box_owner(i).load());
  talk(c, b, shape.send_threshold);
  c.messenger.poll(64);
  CHECK(has_box(c.to(1)));
}

namespace {

// Member 1 has the only box of member 0, which wants it back because member 2 sends all the time.
struct WantedBox {
  GroupRig rig;
  Member& receiver;
  Member& sender;
  Member& rival;

  static GroupShape shape() {
    GroupShape shape = boxes_for(3, 1);
    shape.box_bytes = 4096;  // 16 slots: three of them may be read and not acknowledged
    shape.send_threshold = 1;
    return shape;
  }
  WantedBox() : rig(shape()), receiver(rig.join(0)), sender(rig.join(1)), rival(rig.join(2)) {
    send(sender, "to have a box");
    sender.messenger.poll(16);
    CHECK(has_box(sender.to(0)));
    // After 65 messages without one through the box it is idle. The next message makes the receiver
    // ask for it.
    for (int i = 0; i < 70; ++i) send(rival, "rival");
  }
  void send(Member& from, const char* text) {
    CHECK(from.to(0).am_send(1, bytes_of(text)) == SendStatus::kDone);
    receiver.messenger.poll(16);
  }
};

}  // namespace

TEST(ShmBoxes, ABoxComesBackThoughItsSenderSendsNoMore) {
  WantedBox world;
  world.send(world.sender, "crosses the request");
  world.sender.messenger.poll(16);  // the box is wanted, and is returned when it is empty
  world.receiver.messenger.poll(16);
  LONGS_EQUAL(1, world.receiver.counters.boxes_returned.read());
}

TEST(ShmBoxes, LosesNothingOfADeadSenderThatHadGivenItsBoxBack) {
  WantedBox world;
  world.sender.messenger.poll(16);
  CHECK_FALSE(has_box(world.sender.to(0)));
  CHECK(world.sender.to(0).am_send(1, bytes_of("last")) == SendStatus::kDone);
  world.rig.kill(1);
  world.receiver.messenger.poll(16);
  STRCMP_EQUAL("last", world.receiver.received.back().payload.c_str());
  LONGS_EQUAL(0, world.receiver.counters.cut_off.read());
}

TEST(ShmBoxes, ABoxGoesBackOnlyWhenAllInItWasRead) {
  WantedBox world;
  for (const char* text : {"one", "two", "three"}) {
    CHECK(world.sender.to(0).am_send(1, bytes_of(text)) == SendStatus::kDone);
  }
  world.sender.messenger.poll(16);  // the box is wanted, but not empty
  CHECK(world.sender.to(0).am_send(1, bytes_of("four")) == SendStatus::kDone);
  CHECK(has_box(world.sender.to(0)));
  world.receiver.received.clear();
  for (int i = 0; i < 20; ++i) {  // one message at a time, so that the FIFO could overtake the box
    world.receiver.messenger.poll(1);
    world.sender.messenger.poll(16);
  }
  LONGS_EQUAL(4, world.receiver.received.size());
  STRCMP_EQUAL("four", world.receiver.received.back().payload.c_str());
  LONGS_EQUAL(1, world.receiver.counters.boxes_returned.read());
}
