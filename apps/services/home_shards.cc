#include "apps/services/home_shards.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "platform/assert.h"

namespace bedplate {

std::vector<uint32_t> choose_homes(std::span<const HomeWish> parts) {
  std::map<uint32_t, uint64_t> loads;  // by shard
  std::vector<uint32_t> homes(parts.size());
  std::vector<size_t> order;  // the parts without a shard, as they are placed
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].shard.has_value()) {
      BP_ASSERT(!parts[i].candidates.empty());
      order.push_back(i);
      continue;
    }
    homes[i] = *parts[i].shard;
    loads[homes[i]] += parts[i].load;
  }
  // Parts with the same load keep their order.
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t left, size_t right) { return parts[left].load > parts[right].load; });
  for (const size_t i : order) {
    const std::vector<uint32_t>& candidates = parts[i].candidates;
    homes[i] = *std::min_element(
        candidates.begin(), candidates.end(),
        [&](uint32_t left, uint32_t right) { return loads[left] < loads[right]; });
    loads[homes[i]] += parts[i].load;
  }
  return homes;
}

}  // namespace bedplate
