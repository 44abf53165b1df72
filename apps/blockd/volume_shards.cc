#include "apps/blockd/volume_shards.h"

#include <algorithm>

#include "apps/services/home_shards.h"
#include "platform/assert.h"

namespace bedplate {
namespace {

// The shard that the volume names; else the shards on the node of its drive; all, if none is there.
std::vector<uint32_t> candidates_of(const VolumeWish& volume,
                                    std::span<const VolumeShardChoice> choices) {
  if (volume.shard.has_value()) return {*volume.shard};
  std::vector<uint32_t> near, all;
  for (const VolumeShardChoice& choice : choices) {
    all.push_back(choice.shard);
    if (choice.node == volume.node) near.push_back(choice.shard);
  }
  return near.empty() ? all : near;
}

}  // namespace

std::vector<uint32_t> choose_volume_shards(std::span<const VolumeWish> volumes,
                                           std::span<const VolumeShardChoice> choices) {
  BP_ASSERT(!choices.empty());
  std::vector<HomeWish> wishes;
  for (const VolumeWish& volume : volumes) {
    wishes.push_back({.candidates = candidates_of(volume, choices)});
  }
  return choose_homes(wishes);
}

std::vector<uint32_t> distinct_shards(std::vector<uint32_t> shards) {
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  return shards;
}

}  // namespace bedplate
