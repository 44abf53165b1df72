#include "apps/blockd/volume_shards.h"

#include <algorithm>
#include <map>

#include "platform/assert.h"

namespace bedplate {
namespace {

uint32_t choose(const VolumeWish& volume, std::span<const VolumeShardChoice> choices,
                const std::map<uint32_t, uint32_t>& counts) {
  const auto is_near = [&](const VolumeShardChoice& choice) { return choice.node == volume.node; };
  const bool has_near = std::any_of(choices.begin(), choices.end(), is_near);
  const VolumeShardChoice* best = nullptr;
  for (const VolumeShardChoice& choice : choices) {
    if (has_near && !is_near(choice)) continue;
    if (best == nullptr || counts.at(choice.shard) < counts.at(best->shard)) best = &choice;
  }
  return best->shard;
}

}  // namespace

std::vector<uint32_t> choose_volume_shards(std::span<const VolumeWish> volumes,
                                           std::span<const VolumeShardChoice> choices) {
  BP_ASSERT(!choices.empty());
  std::map<uint32_t, uint32_t> counts;  // volumes by shard
  for (const VolumeShardChoice& choice : choices) counts[choice.shard] = 0;
  for (const VolumeWish& volume : volumes) {
    if (volume.shard.has_value()) ++counts[*volume.shard];
  }
  std::vector<uint32_t> chosen;
  for (const VolumeWish& volume : volumes) {
    if (volume.shard.has_value()) {
      chosen.push_back(*volume.shard);
      continue;
    }
    chosen.push_back(choose(volume, choices, counts));
    ++counts[chosen.back()];
  }
  return chosen;
}

std::vector<uint32_t> distinct_shards(std::vector<uint32_t> shards) {
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  return shards;
}

}  // namespace bedplate
