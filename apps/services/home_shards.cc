#include "apps/services/home_shards.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>

#include "platform/assert.h"

namespace bedplate {

std::vector<uint32_t> choose_homes(std::span<const HomeWish> parts) {
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Parts with the same load keep their order.
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    const bool is_left_free = parts[left].candidates.size() > 1;
    const bool is_right_free = parts[right].candidates.size() > 1;
    if (is_left_free != is_right_free) return is_right_free;
    return parts[left].load > parts[right].load;
  });
  std::map<uint32_t, uint64_t> loads;  // by shard
  std::vector<uint32_t> homes(parts.size());
  for (const size_t i : order) {
    const std::vector<uint32_t>& candidates = parts[i].candidates;
    BP_ASSERT(!candidates.empty());
    homes[i] = *std::min_element(
        candidates.begin(), candidates.end(),
        [&](uint32_t left, uint32_t right) { return loads[left] < loads[right]; });
    loads[homes[i]] += parts[i].load;
  }
  return homes;
}

}  // namespace bedplate
