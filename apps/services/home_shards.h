// Decides which shard each part of a service lives on, if one shard alone serves it: a volume, a
// stream.
//
// A part that names its shard lives there. All others are placed in the order of their loads, the
// largest first, each on the one of its candidates that has the least load so far. The same wishes
// give the same homes. If no part names its shard and all have the same candidates, the fullest
// shard has at most 4/3 of the load that it would have by the best choice (R. L. Graham, Bounds on
// Multiprocessing Timing Anomalies, 1969).
// Threads: any. It allocates: it is for the plan.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace bedplate {

// The label of a set of counters whose part lives on one shard; its value is the shard's name. All
// that shows labels thus tells where the part lives: `plan` before the start, `stats`, `top`, the
// status page and /metrics afterwards.
inline constexpr const char* kHomeLabel = "shard";

// The wishes of a part. `candidates`: the earlier of two equally loaded shards is chosen.
struct HomeWish {
  std::optional<uint32_t> shard = {};  // nothing: one of `candidates`
  std::vector<uint32_t> candidates = {};
  uint64_t load = 1;  // in any unit, the same for all parts
};

// The shard of each part. Requires: a part without a shard has candidates; the sum of all loads
// fits into 64 bits.
std::vector<uint32_t> choose_homes(std::span<const HomeWish> parts);

}  // namespace bedplate
