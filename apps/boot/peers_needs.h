// The needs of an appliance's peers ([verbs]), as libbedplate-verbs.a tells them to the plan
// (peers.h): the runtime reads its tables no further.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pinned_pool/plan.h"

namespace bedplate {

// Without [verbs] there are none.
struct PeersNeeds {
  bool is_there = false;     // the configuration has [verbs]
  bool is_required = false;  // there is no appliance without its device
  uint32_t shard = 0;        // the index of the one that messages with peers live on
  uint64_t threads = 0;
  uint64_t descriptors = 0;
  std::vector<std::string> names;  // of the peers that are listed
  std::vector<SegmentRequest> segments;
};

// The registrations of one kind of process with the device of [verbs]. Regions: one for each
// segment, if the device takes it whole, and one for each opening to peers, which pins its bytes
// once more.
struct VerbsContextPlan {
  std::string process;  // the appliance, or a [[process]]
  uint64_t count = 1;   // how many of them may run, each with a context of its own
  uint64_t region_count = 0;
  uint64_t locked_bytes = 0;

  uint64_t total_bytes() const noexcept { return count * locked_bytes; }
};

}  // namespace bedplate
