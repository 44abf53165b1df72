// Decides which shard each part of a service lives on, if one shard alone serves it: a volume, a
// stream.
//
// A part with one candidate lives there. All others are placed in the order of their loads, the
// largest first, each on the one of its candidates that has the least load so far. The same wishes
// give the same homes. If all parts have the same candidates, the fullest shard has at most 4/3 of
// the load that it would have by the best choice (R. L. Graham, Bounds on Multiprocessing Timing
// Anomalies, 1969).
// Threads: any. It allocates: it is for the plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bedplate {

// The label of a set of counters whose part lives on one shard; its value is the shard's name. All
// that shows labels thus tells where the part lives: `plan` before the start, `stats`, `top`, the
// status page and /metrics afterwards.
inline constexpr const char* kHomeLabel = "shard";

// The wishes of a part. The earlier of two equally loaded candidates is chosen.
struct HomeWish {
  std::vector<uint32_t> candidates = {};
  uint64_t load = 1;  // in any unit, the same for all parts
};

// The shard of each part. Requires: each part has a candidate; the sum of all loads fits into 64
// bits.
std::vector<uint32_t> choose_homes(std::span<const HomeWish> parts);

}  // namespace bedplate
