// Decides which shard each volume of a block service lives on.
//
// A volume that names its shard lives there. Any other volume goes to a shard for volumes on the
// NUMA node of its drive. If that node has none, all shards for volumes are candidates. Among the
// candidates the volume gets the shard with the fewest volumes.
// Threads: any. It allocates: it is for the plan.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "platform/numa.h"

namespace bedplate {

// A volume's wishes.
struct VolumeWish {
  std::optional<uint32_t> shard = {};  // nothing: it names none
  int node = kAnyNode;                 // of its drive; kAnyNode: none preferred
};

// A shard for volumes: its index, and the node of its core.
struct VolumeShardChoice {
  uint32_t shard = 0;
  int node = 0;
};

// The shard of each volume. Requires: `choices` is not empty.
std::vector<uint32_t> choose_volume_shards(std::span<const VolumeWish> volumes,
                                           std::span<const VolumeShardChoice> choices);

// `shards` without duplicates, ascending.
std::vector<uint32_t> distinct_shards(std::vector<uint32_t> shards);

}  // namespace bedplate
