// Which shard each volume of a block service lives on.
//
// A volume that names its shard lives there. Of the others each goes to a shard on the NUMA node
// that it is at, where there is one among those that may have volumes, else to any of them; and of
// these to the one with the fewest, so that volumes spread.
// Threads: any. It allocates: for the plan.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "platform/numa.h"

namespace bedplate {

// What is known of a volume.
struct VolumeWish {
  std::optional<uint32_t> shard = {};  // that it names
  int node = kAnyNode;                 // of its drive
};

// A shard that may have volumes: its index, and the node of its core.
struct VolumeShardChoice {
  uint32_t shard = 0;
  int node = 0;
};

// The shard of each. Requires: `choices` is not empty.
std::vector<uint32_t> choose_volume_shards(std::span<const VolumeWish> volumes,
                                           std::span<const VolumeShardChoice> choices);

// All of `shards`, each once, ascending.
std::vector<uint32_t> distinct_shards(std::vector<uint32_t> shards);

}  // namespace bedplate
