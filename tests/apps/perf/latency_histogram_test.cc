#include "apps/perf/latency_histogram.h"

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(LatencyHistogram) { LatencyHistogram times; };

TEST(LatencyHistogram, NothingIsZero) {
  CHECK_EQUAL(0, times.count());
  CHECK_EQUAL(0, times.min_ns());
  CHECK_EQUAL(0, times.max_ns());
  CHECK_EQUAL(0, times.percentile_ns(0.5));
}

TEST(LatencyHistogram, SmallTimesAreExact) {
  for (uint64_t ns = 1; ns <= 1000; ++ns) times.add(ns);
  CHECK_EQUAL(1000, times.count());
  CHECK_EQUAL(1, times.min_ns());
  CHECK_EQUAL(501, times.percentile_ns(0.5));
  CHECK_EQUAL(991, times.percentile_ns(0.99));
  CHECK_EQUAL(1000, times.percentile_ns(1));
  DOUBLES_EQUAL(500.5, times.mean_ns(), 1e-9);
}

TEST(LatencyHistogram, WhatLastsForeverIsCountedToo) {
  times.add(UINT64_MAX);
  times.add(5);
  CHECK_EQUAL(5, times.min_ns());
  CHECK_EQUAL(UINT64_MAX, times.max_ns());
  CHECK_EQUAL(2, times.count());
}

// Compares the percentiles with a sorted list.
TEST(LatencyHistogram, PercentilesAreRightToAThousandth) {
  const Seed seed;
  std::mt19937_64 random(seed.value());
  std::vector<uint64_t> all;
  for (int i = 0; i < 50'000; ++i) {
    all.push_back(random() >> (20 + random() % 44));  // of all magnitudes
    times.add(all.back());
  }
  std::sort(all.begin(), all.end());
  for (const double share : {0.0, 0.1, 0.5, 0.9, 0.99, 0.999}) {
    const auto exact =
        static_cast<double>(all[static_cast<size_t>(share * static_cast<double>(all.size()))]);
    DOUBLES_EQUAL_TEXT(exact, static_cast<double>(times.percentile_ns(share)), exact / 1000 + 0.5,
                       seed.text());
  }
}
