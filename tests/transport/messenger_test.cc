// The messenger: which provider it takes, why it took none, and what it does with what arrives.
#include "transport/messenger.h"

#include "platform/clock.h"
#include "platform/units.h"
#include "tests/support/patience.h"
#include "tests/transport/group_rig.h"
#include "transport/self/self_provider.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(Messenger) {
  const GroupShape shape = shape_of(GroupKind::kLazy, 3);
};

TEST(Messenger, WithoutProvidersSaysSo) {
  Messenger messenger;
  auto endpoint = messenger.connect({0});
  CHECK_FALSE(endpoint.ok());
  STRCMP_CONTAINS("no providers", endpoint.error().answer);
  STRCMP_CONTAINS("add_provider", endpoint.error().cure);
}

TEST(Messenger, TakesTheFirstProviderThatHasAWay) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  rig.join(1);
  SelfProvider self(0, false, a.messenger.dispatcher());
  a.messenger.add_provider(self);
  STRCMP_EQUAL("shm", a.to(1).provider_name());
  STRCMP_EQUAL("self", a.to(0).provider_name());
  POINTERS_EQUAL(&a.to(1), &a.to(1));
}

TEST(Messenger, EachProviderSaysWhyItWasNotTaken) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  const struct {
    uint32_t member;
    const char* why;
  } cases[] = {{3, "the group has 3 members"},
               {UINT32_MAX, "the group has 3 members"},
               {0, "that is this member itself"},
               {1, "its place is free"}};
  for (const auto& one : cases) {
    auto endpoint = a.messenger.connect({one.member});
    CHECK_FALSE(endpoint.ok());
    STRCMP_CONTAINS(one.why, endpoint.error().answer);
    CHECK(endpoint.error().cure[0] != '\0');
  }
  SelfProvider self(0, false, a.messenger.dispatcher());
  a.messenger.add_provider(self);
  auto endpoint = a.messenger.connect({1});
  CHECK_FALSE(endpoint.ok());
  STRCMP_CONTAINS("shm: its place is free; self: ", endpoint.error().answer);
}

TEST(Messenger, WhatHasNoHandlerIsCountedAndItsLoanGivenBack) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  CHECK(a.to(1).am_send(255, bytes_of("nobody")) == SendStatus::kDone);
  CHECK(a.to(1).am_send(1, bytes_of("somebody")) == SendStatus::kDone);
  b.messenger.poll(8);
  LONGS_EQUAL(1, b.counters.unhandled.read());
  LONGS_EQUAL(1, b.received.size());
  LONGS_EQUAL(2, b.counters.received.read());
}

TEST(Messenger, PollSaysHowMuchCameWithinItsBudget) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  for (int i = 0; i < 5; ++i) CHECK(a.to(1).am_send(1, bytes_of("x")) == SendStatus::kDone);
  LONGS_EQUAL(2, b.messenger.poll(2));
  LONGS_EQUAL(3, b.messenger.poll(8));
  LONGS_EQUAL(0, b.messenger.poll(8));
}

TEST(Messenger, WaitReturnsAtOnceWhenSomethingIsThere) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  CHECK(a.to(1).am_send(1, bytes_of("x")) == SendStatus::kDone);
  const uint64_t begin_ns = monotonic_ns();
  b.messenger.wait(2 * kPatienceNs);
  CHECK(monotonic_ns() - begin_ns < kPatienceNs);
  LONGS_EQUAL(1, b.received.size());
  b.messenger.wait(kNsPerMs);  // and ends by itself
  CHECK(a.to(1).am_send(9, {}) == SendStatus::kDone);
  CHECK(a.to(1).am_send(9, bytes_of(std::string(4097, 'x'))) == SendStatus::kTooLong);
}
