// The table of narrow paths: its entries, and how long they last.
#include "transport/dpdk/net/path_mtus_datapath.h"

#include <string>

#include "tests/transport/dpdk/net/frames.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using frames::ip;

TEST_GROUP(PathMtus) {
  ::bedplate::PathMtus paths{2};

  void teardown() override { CHECK(paths.is_valid()); }
};

TEST(PathMtus, ForgetsAfterTenMinutes) {
  LONGS_EQUAL(1500, paths.mtu_bytes(ip("192.0.2.9"), 1500, 5));
  CHECK(paths.learn(ip("192.0.2.9"), 1400, 5));
  LONGS_EQUAL(1400, paths.mtu_bytes(ip("192.0.2.9"), 1500, 6));
  LONGS_EQUAL(1500, paths.mtu_bytes(ip("192.0.2.8"), 1500, 6));
  LONGS_EQUAL(1400, paths.mtu_bytes(ip("192.0.2.9"), 1500, 4 + PathMtus::kLifeNs));
  LONGS_EQUAL(1500, paths.mtu_bytes(ip("192.0.2.9"), 1500, 5 + PathMtus::kLifeNs));
}

TEST(PathMtus, BelievesNoNonsense) {
  CHECK(!paths.learn(ip("192.0.2.9"), 551, 5));
  CHECK(!paths.learn(ip("2001:db8::9"), 1279, 5));
  CHECK(paths.learn(ip("192.0.2.9"), 1400, 5));
  CHECK(!paths.learn(ip("192.0.2.9"), 1450, 6));  // a message cannot raise the MTU of a path
  CHECK(paths.learn(ip("192.0.2.9"), 1300, 6));
  LONGS_EQUAL(1300, paths.mtu_bytes(ip("192.0.2.9"), 1500, 7));
}

TEST(PathMtus, AFullTableForgetsTheOldest) {
  CHECK(paths.learn(ip("192.0.2.1"), 1400, 1));
  CHECK(paths.learn(ip("192.0.2.2"), 1400, 2));
  CHECK(paths.learn(ip("192.0.2.3"), 1400, 3));
  LONGS_EQUAL(1500, paths.mtu_bytes(ip("192.0.2.1"), 1500, 4));
  LONGS_EQUAL(1400, paths.mtu_bytes(ip("192.0.2.2"), 1500, 4));
  LONGS_EQUAL(1400, paths.mtu_bytes(ip("192.0.2.3"), 1500, 4));
}
