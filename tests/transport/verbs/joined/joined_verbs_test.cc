// A joined process opens the appliance's RDMA device, with and without the owner's grant.
// tests/system/messages_test.py and tests/guest/verbs_test.py test this together with the owner.
#include "transport/verbs/joined/joined_verbs.h"

#include <cstring>

#include "tests/support/pool_fixture.h"
#include "tests/support/skip.h"
#include "tests/support/soft_roce.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(VerbsJoined) {
  TestPool pool{kTestPoolBaseInRange};
  JoinedVerbs verbs;
  ProcessTerms terms;

  void setup() override {
    CHECK(pool->create_segment("heap:ann.0", 64 * kKiB, PageSize::k4KiB, 1).ok());
    CHECK(pool->create_segment("members", 4 * kKiB, PageSize::k4KiB, 1).ok());
    pool->segment(1).is_writable = false;
  }
  Error refusal() {
    const auto opened = verbs.open(terms, "ann", *pool, 0);
    CHECK(!opened.ok());
    return opened.ok() ? Error{} : opened.error();
  }
};

TEST(VerbsJoined, WhoIsNotPlannedToUseThemIsRefused) {
  const Error error = refusal();
  STRCMP_EQUAL("opening the appliance's RDMA device as ann", error.doing);
  STRCMP_EQUAL("this process is not planned to use one", error.answer);
  STRCMP_EQUAL("set verbs = true in its [[process]] of the owner's configuration", error.cure);
}

TEST(VerbsJoined, AnApplianceWithoutADeviceHasNoneToGive) {
  terms.verbs = ProcessTerms::Verbs::kNoDevice;
  const Error error = refusal();
  STRCMP_EQUAL("the appliance has none, and requires none", error.answer);
  STRCMP_EQUAL("see the owner's log for why, or do without", error.cure);
}

// If the machine has only other devices, the process opens none of them.
TEST(VerbsJoined, TheOwnersDeviceIsOpenedOrNone) {
  const bool is_there = has_verbs_device();
  terms = {"mlx5_7", 3};
  STRCMP_EQUAL(is_there ? "looking for the RDMA device mlx5_7, port 3" : "looking for RDMA devices",
               refusal().doing);
}

TEST(VerbsJoined, WhatMayBeWrittenIsRegisteredOnce) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  const VerbsPort port = choose_verbs_port("", 0).take();
  terms = {port.device.c_str(), port.port};
  const uint64_t before = registration_counts().total;
  CHECK(verbs.open(terms, "ann", *pool, 0).ok());
  LONGS_EQUAL(1, registration_counts().total - before);
  STRCMP_EQUAL(port.device.c_str(), verbs.device().port().device.c_str());
  CHECK(verbs.keys().key(pool->segment(0).address, 1).key != kNoKey);
  CHECK(verbs.keys().key(pool->segment(1).address, 1).key == kNoKey);
}
