// A limit of packets: of a burst, and of those in a second.
#include "transport/dpdk/net/packet_limit_datapath.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;

TEST_GROUP(PacketLimit){};

TEST(PacketLimit, GivesABurstAndThenSoManyInASecond) {
  PacketLimit limit(10, 3);
  uint64_t now_ns = 1'000'000'000'000;
  for (int i = 0; i < 3; ++i) CHECK(limit.try_take(now_ns));
  CHECK(!limit.try_take(now_ns));
  CHECK(!limit.try_take(now_ns + 99'999'999));
  CHECK(limit.try_take(now_ns + 100'000'000));
  CHECK(!limit.try_take(now_ns + 100'000'000));
  now_ns += 3'600'000'000'000;
  for (int i = 0; i < 3; ++i) CHECK(limit.try_take(now_ns));
  CHECK(!limit.try_take(now_ns));  // it holds no more than a burst
}
