// A histogram that one thread writes and any thread or process reads. It is log-linear: the error
// of every value up to 2^40 (in nanoseconds: 18 minutes) is at most a sixteenth; larger values are
// counted as 2^40 - 1.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "platform/counter.h"

namespace bedplate {

// It has no unit: readers get values in the unit that the writer adds them in. A zeroed Histogram
// is valid, so histograms can lie in a mapped file.
class Histogram {
 public:
  static constexpr uint32_t kStepBits = 4;  // each power of two has 16 steps
  static constexpr uint32_t kPowerMax = 40;
  static constexpr size_t kBucketCount = size_t{kPowerMax - kStepBits + 1} << kStepBits;

  // Adds `value`, `count` times. Cost: the position of a bit, a shift, one load and one store (1 to
  // 2 ns). Threads: the one writer.
  void add(uint64_t value, uint64_t count = 1) noexcept {
    const size_t bucket = bucket_of(value);
    BP_DCHECK(bucket < kBucketCount && (value <= last_of(bucket) || bucket + 1 == kBucketCount));
    buckets_[bucket].add(count);
  }

  static constexpr size_t bucket_of(uint64_t value) noexcept {
    constexpr uint64_t kMax = (uint64_t{1} << kPowerMax) - 1;
    const uint64_t kept = value < kMax ? value : kMax;
    // Below 2^5 each value has a bucket of its own.
    const auto power = static_cast<uint32_t>(std::bit_width(kept | ((1U << kStepBits) - 1)));
    const uint32_t shift = power - kStepBits - (power > kStepBits ? 1 : 0);
    return (size_t{shift} << kStepBits) + static_cast<size_t>(kept >> shift);
  }
  // The largest value that a bucket counts; the last bucket counts all larger values, too.
  static constexpr uint64_t last_of(size_t bucket) noexcept {
    const size_t step_count = size_t{1} << kStepBits;
    if (bucket < 2 * step_count) return bucket;
    const size_t shift = bucket / step_count - 1;
    return ((bucket - shift * step_count + 1) << shift) - 1;
  }

  // The number of values. Threads: any. Values added meanwhile may count or not.
  uint64_t count() const noexcept { return count_of(buckets_); }
  // The value that `share` of all values (0 to 1) do not exceed. It is the largest value of its
  // bucket, so at most a sixteenth too large; 2^40 - 1 stands for all larger values. 0 if nothing
  // was added. Threads: any.
  uint64_t percentile(double share) const noexcept { return percentile_of(buckets_, share); }

  // The same for buckets that lie elsewhere: if another build wrote them, there may be fewer or
  // more than in this program's histograms. Requires: the other build's kStepBits is the same.
  static uint64_t count_of(std::span<const Counter> buckets) noexcept {
    uint64_t sum = 0;
    for (const Counter& bucket : buckets) sum += bucket.read();
    return sum;
  }
  static uint64_t percentile_of(std::span<const Counter> buckets, double share) noexcept {
    BP_DCHECK(share >= 0 && share <= 1);
    const auto wanted = static_cast<uint64_t>(share * static_cast<double>(count_of(buckets)) + 0.5);
    uint64_t sum = 0;
    uint64_t last = 0;
    for (size_t i = 0; i < buckets.size(); ++i) {
      const uint64_t here = buckets[i].read();
      if (here == 0) continue;
      sum += here;
      last = last_of(i);
      if (sum >= wanted) break;
    }
    return last;
  }

 private:
  Counter buckets_[kBucketCount];
};
static_assert(Histogram::bucket_of(UINT64_MAX) == Histogram::kBucketCount - 1);
static_assert(Histogram::last_of(Histogram::kBucketCount - 1) + 1 == uint64_t{1}
                                                                         << Histogram::kPowerMax);

// The percentiles that every report of a histogram shows.
struct Percentile {
  const char* name;  // for people
  const char* key;   // in JSON
  double share;      // of all values that do not exceed the percentile
  bool is_brief;     // shown also where space is short
};
inline constexpr Percentile kPercentiles[] = {{"p50", "p50", 0.5, true},
                                              {"p90", "p90", 0.9, false},
                                              {"p99", "p99", 0.99, true},
                                              {"p99.9", "p999", 0.999, false},
                                              {"max", "max", 1.0, true}};

}  // namespace bedplate
