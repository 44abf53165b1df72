// A histogram of times, exact to a thousandth, for any number of times, in 300 KiB.
//
// Times are in nanoseconds; those above 39 hours share the last bucket. Counters use
// platform/histogram.h, which is coarse, small, and read by others while it is written; this one is
// private to a measurement. Threads: one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "platform/assert.h"

namespace bedplate {

class LatencyHistogram {
 public:
  // Allocates, once.
  LatencyHistogram() : counts_(kBucketCount) {}

  // Cost: a few instructions. It does not allocate, so it may run inside a measurement.
  void add(uint64_t ns) noexcept {
    const uint32_t bucket = bucket_of(ns);
    BP_DCHECK(bucket < kBucketCount);
    ++counts_[bucket];
    ++count_;
    sum_ns_ += ns;
    min_ns_ = std::min(min_ns_, ns);
    max_ns_ = std::max(max_ns_, ns);
  }

  // All 0 while the histogram is empty. Least, greatest and mean are exact.
  uint64_t count() const noexcept { return count_; }
  uint64_t min_ns() const noexcept { return count_ == 0 ? 0 : min_ns_; }
  uint64_t max_ns() const noexcept { return max_ns_; }
  double mean_ns() const noexcept {
    return count_ == 0 ? 0 : static_cast<double>(sum_ns_) / static_cast<double>(count_);
  }
  // The time that `share` (0 to 1) of all times do not exceed, exact to a thousandth.
  uint64_t percentile_ns(double share) const noexcept {
    BP_ASSERT(share >= 0 && share <= 1);
    const auto wanted = static_cast<uint64_t>(share * static_cast<double>(count_));
    uint64_t seen = 0;
    for (uint32_t bucket = 0; bucket < kBucketCount; ++bucket) {
      seen += counts_[bucket];
      if (seen > wanted) return std::clamp(middle_of(bucket), min_ns_, max_ns_);
    }
    return max_ns_;
  }

 private:
  // Values below kExact have a bucket each; above, each power of two has kExact / 2 buckets.
  static constexpr uint32_t kExactLog2 = 11;
  static constexpr uint32_t kExact = 1 << kExactLog2;
  static constexpr uint32_t kPowerCount = 36;  // up to 39 hours
  static constexpr uint32_t kBucketCount = kExact + kPowerCount * kExact / 2;

  static uint32_t bucket_of(uint64_t ns) noexcept {
    if (ns < kExact) return static_cast<uint32_t>(ns);
    const auto shift = static_cast<uint32_t>(std::bit_width(ns)) - kExactLog2;
    if (shift > kPowerCount) return kBucketCount - 1;
    return kExact + (shift - 1) * kExact / 2 + static_cast<uint32_t>((ns >> shift) - kExact / 2);
  }
  static uint64_t middle_of(uint32_t bucket) noexcept {
    if (bucket < kExact) return bucket;
    const uint32_t shift = (bucket - kExact) / (kExact / 2) + 1;
    const uint64_t top = (bucket - kExact) % (kExact / 2) + kExact / 2;
    return (top << shift) + (uint64_t{1} << shift) / 2;
  }

  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  uint64_t sum_ns_ = 0;
  uint64_t min_ns_ = UINT64_MAX;
  uint64_t max_ns_ = 0;
};

}  // namespace bedplate
