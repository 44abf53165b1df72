#include "platform/histogram.h"

#include <memory>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Histogram) { std::unique_ptr<Histogram> histogram = std::make_unique<Histogram>(); };

TEST(Histogram, EveryValueIsKnownToASixteenth) {
  size_t before = 0;
  for (uint64_t value = 0; value < uint64_t{1} << 40; value += 1 + value / 1000) {
    const size_t bucket = Histogram::bucket_of(value);
    CHECK(bucket < Histogram::kBucketCount);
    CHECK(bucket == before || bucket == before + 1);  // no bucket is skipped
    before = bucket;
    const uint64_t told = Histogram::last_of(bucket);
    CHECK(told >= value);
    CHECK(told - value <= value / 16);
    CHECK_EQUAL(bucket, Histogram::bucket_of(told));
  }
  LONGS_EQUAL(Histogram::kBucketCount - 1, before);
  LONGS_EQUAL(Histogram::kBucketCount - 1, Histogram::bucket_of(~uint64_t{0}));
}

TEST(Histogram, PercentilesAreThoseOfWhatWasAdded) {
  CHECK_EQUAL(0, histogram->percentile(0.5));
  for (uint64_t value = 1; value <= 1000; ++value) histogram->add(value * 1000);
  CHECK_EQUAL(1000, histogram->count());
  const struct {
    double share;
    uint64_t wanted;
  } cases[] = {{0.0, 1000}, {0.001, 1000}, {0.5, 500'000}, {0.99, 990'000}, {1.0, 1'000'000}};
  for (const auto& one : cases) {
    const uint64_t told = histogram->percentile(one.share);
    CHECK(told >= one.wanted);
    CHECK(told <= one.wanted + one.wanted / 16);
  }
  // A value above the range counts as the largest value.
  histogram->add(~uint64_t{0});
  CHECK_EQUAL((uint64_t{1} << 40) - 1, histogram->percentile(1.0));
}

TEST(Histogram, AValueMayBeAddedManyTimesAtOnce) {
  histogram->add(3, 40);
  histogram->add(7);
  CHECK_EQUAL(41, histogram->count());
  CHECK_EQUAL(3, histogram->percentile(0.97));
  CHECK_EQUAL(7, histogram->percentile(1));
}
