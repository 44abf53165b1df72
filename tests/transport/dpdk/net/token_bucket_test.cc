// A token bucket: it limits a burst, and the rate in a second.
#include "transport/dpdk/net/token_bucket_datapath.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;

TEST_GROUP(TokenBucket){};

TEST(TokenBucket, GivesABurstAndThenSoManyInASecond) {
  TokenBucket limit(10, 3);
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
