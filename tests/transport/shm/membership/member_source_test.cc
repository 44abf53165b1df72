// A joined member in an event loop, and behind a descriptor: messages wake it, nothing is lost, and
// the owner's death is reported. Members are threads, so that ThreadSanitizer sees them.
#include "transport/shm/membership/member_source.h"

#include <atomic>
#include <thread>

#include <poll.h>

#include "tests/support/patience.h"
#include "tests/transport/loop/plain_sleeper.h"
#include "tests/transport/messages/talkative_provider.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr AmId kId = 1;

struct SourceRig {
  SourceRig() : own(group.join(0)) {
    group.join(1);
    own.messenger.set_handler(kId, {[](void* context, const Message&) noexcept {
                                      static_cast<SourceRig*>(context)->heard.fetch_add(1);
                                    },
                                    this});
  }
  MemberParts parts() { return {own.messenger, own.shm, group.members()}; }
  bool is_asleep() { return group.segment().wrapper(0).asleep.load() != 0; }
  bool hears(uint32_t count) {
    return eventually([&] { return heard.load() >= count; });
  }

  GroupRig group{shape_of(GroupKind::kLazy, 2)};
  Member& own;
  std::atomic<uint32_t> heard{0};
};

bool is_readable(int fd) {
  pollfd wanted = {fd, POLLIN, 0};
  return poll(&wanted, 1, 0) == 1;
}

// A late ring may come when it is no longer needed: the watch may see the bells while arm() raises
// them, or ring while disarm() lowers them. The next arm() takes that ring away.
bool arms_in_silence(MemberDescriptor& descriptor) {
  return eventually([&] {
    if (!descriptor.arm()) return false;
    if (!is_readable(descriptor.fd())) return true;
    descriptor.disarm();
    return false;
  });
}

// Whether the descriptor becomes readable while armed, and is not readable after disarm().
bool is_readable_while_armed(MemberDescriptor& descriptor) {
  return eventually([&] {
    if (!descriptor.arm()) return false;
    const bool was_readable = has_input(descriptor.fd());
    descriptor.disarm();
    return was_readable && !is_readable(descriptor.fd());
  });
}

}  // namespace

TEST_GROUP(MemberSource){};

TEST(MemberSource, WakesAnEventLoop) {
  SourceRig rig;
  EventLoop loop;
  CHECK(loop.create({.spin_ns = 0}).ok());
  PlainSleeper sleeper(loop);
  loop.set_sleeper(sleeper);
  MemberSource source(rig.parts());
  CHECK(source.start(loop.doorbell()).ok());
  loop.add_source(source, 64);
  Endpoint& to_own = rig.group.attach(1).to(0);
  std::thread thread([&] { loop.run(); });
  for (uint32_t i = 1; i <= 2000; ++i) {
    if (i % 100 == 0) CHECK(eventually([&] { return rig.is_asleep(); }));
    CHECK(to_own.am_send(kId, {}) == SendStatus::kDone);
    CHECK_TEXT(rig.hears(i), "a ring was lost");
  }
  loop.stop();
  thread.join();
  CHECK_FALSE(sleeper.overslept);
}

// A provider without messages for long is polled only now and then. A message that comes just
// before the sleep rings no bell, so the last poll before the sleep must find it.
TEST(MemberSource, TheLastLookBeforeASleepIsAtAQuietMemberToo) {
  SourceRig rig;
  TalkativeProvider talking, silent;
  silent.found = 0;
  rig.own.messenger.add_provider(talking);
  rig.own.messenger.add_provider(silent);
  MemberSource source(rig.parts());
  Endpoint& to_own = rig.group.attach(1).to(0);
  for (uint32_t round = 1; round <= 10; ++round) {
    talking.found = 1;
    for (uint32_t i = 0; i < 4 * Messenger::kQuietPolls; ++i) source.poll(16);
    talking.found = 0;
    CHECK(to_own.am_send(kId, {}) == SendStatus::kDone);
    source.announce_sleep();
    LONGS_EQUAL(1, source.poll(16));
    source.announce_awake();
  }
}

namespace {

// Counts the calls for space at the receiver.
struct Room : RoomCall {
  Room() {
    call = [](RoomCall& self) noexcept { static_cast<Room&>(self).count.fetch_add(1); };
  }
  std::atomic<uint32_t> count{0};
};

}  // namespace

// No bell rings for space: the loop checks by itself, however long the peer takes.
TEST(MemberSource, ALoopThatSleepsIsToldOfRoom) {
  SourceRig rig;
  EventLoop loop;
  CHECK(loop.create({.spin_ns = 0}).ok());
  PlainSleeper sleeper(loop);
  loop.set_sleeper(sleeper);
  MemberSource source(rig.parts());
  CHECK(source.start(loop.doorbell()).ok());
  loop.add_source(source, 64);
  Endpoint& peer = rig.own.to(1);
  while (peer.am_send(kId, {}) == SendStatus::kDone) continue;
  Room room;
  rig.own.messenger.notify_room(peer, room);
  std::thread thread([&] { loop.run(); });
  CHECK(eventually([&] { return rig.is_asleep(); }));
  LONGS_EQUAL(0, room.count.load());
  rig.group.attach(1).messenger.poll(64);
  CHECK(eventually([&] { return room.count.load() > 0; }));
  loop.stop();
  thread.join();
  CHECK_FALSE(sleeper.overslept);
  LONGS_EQUAL(1, room.count.load());
}

TEST(MemberSource, ADescriptorIsReadableNowAndThenWhileRoomIsWaitedFor) {
  SourceRig rig;
  MemberDescriptor descriptor(rig.parts());
  CHECK(descriptor.create().ok());
  Endpoint& peer = rig.own.to(1);
  while (peer.am_send(kId, {}) == SendStatus::kDone) continue;
  Room room;
  rig.own.messenger.notify_room(peer, room);
  for (int i = 0; i < 3; ++i) {
    CHECK(is_readable_while_armed(descriptor));  // its pause is over
    LONGS_EQUAL(0, rig.own.messenger.poll(64));
    LONGS_EQUAL(0, room.count.load());
  }
  rig.group.attach(1).messenger.poll(64);
  CHECK(eventually([&] { return !descriptor.arm(); }));  // arm() checks once more
  LONGS_EQUAL(1, room.count.load());
  CHECK(arms_in_silence(descriptor));  // silent again, until a message comes
}

TEST(MemberSource, ADescriptorIsReadableWhenSomethingHasCome) {
  SourceRig rig;
  MemberDescriptor descriptor(rig.parts());
  CHECK(descriptor.create().ok());
  Endpoint& to_own = rig.group.attach(1).to(0);
  for (uint32_t i = 1; i <= 20; ++i) {
    CHECK(arms_in_silence(descriptor));
    CHECK(descriptor.is_armed());
    CHECK(to_own.am_send(kId, {}) == SendStatus::kDone);
    CHECK(has_input(descriptor.fd()));
    descriptor.disarm();
    CHECK_FALSE(rig.is_asleep());
    LONGS_EQUAL(1, rig.own.messenger.poll(64));
    LONGS_EQUAL(i, rig.heard.load());
  }
}

TEST(MemberSource, WhatIsThereAlreadyIsNotWaitedFor) {
  SourceRig rig;
  MemberDescriptor descriptor(rig.parts());
  CHECK(descriptor.create().ok());
  CHECK(rig.group.attach(1).to(0).am_send(kId, {}) == SendStatus::kDone);
  CHECK_FALSE(descriptor.arm());
  LONGS_EQUAL(1, rig.heard.load());
  CHECK_FALSE(descriptor.is_armed());
  CHECK_FALSE(rig.is_asleep());
  CHECK(eventually([&] { return descriptor.arm(); }));
  CHECK(descriptor.arm());  // a second arm() does no harm
}

TEST(MemberSource, ADescriptorLosesNothing) {
  constexpr uint32_t kCount = 20'000;
  SourceRig rig;
  MemberDescriptor descriptor(rig.parts());
  CHECK(descriptor.create().ok());
  Endpoint& to_own = rig.group.attach(1).to(0);
  std::atomic<bool> overslept{false};
  std::thread thread([&] {
    while (rig.heard.load() < kCount && !overslept.load()) {
      while (rig.own.messenger.poll(64) > 0) {
      }
      if (rig.heard.load() == kCount) break;
      if (descriptor.arm() && !has_input(descriptor.fd())) overslept.store(true);
      descriptor.disarm();
    }
  });
  for (uint32_t i = 0; i < kCount && !overslept.load(); ++i) {
    for (uint32_t pause = i % 64; pause > 0; --pause) cpu_relax();
    CHECK(to_own.am_send(kId, {}) == SendStatus::kDone);
    if (!eventually([&] { return rig.heard.load() >= i + 1 || overslept.load(); })) break;
  }
  thread.join();
  CHECK_FALSE(overslept.load());
  LONGS_EQUAL(kCount, rig.heard.load());
}

TEST(MemberSource, TheOwnersDeathMakesItReadable) {
  SourceRig rig;
  MemberDescriptor descriptor(rig.parts());
  CHECK(descriptor.create().ok());
  CHECK(eventually([&] { return descriptor.arm(); }));
  rig.group.members().release_owner_life();
  CHECK(has_input(descriptor.fd()));
  descriptor.disarm();
  rig.own.messenger.poll(64);
  CHECK(eventually([&] { return descriptor.arm(); }));  // reported once
}
