// The needs of an appliance's peers ([verbs]). libbedplate-verbs.a tells it to the plan (peers.h):
// the runtime reads nothing else of these tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pinned_pool/plan.h"

namespace bedplate {

// Empty without [verbs].
struct PeersNeeds {
  bool is_there = false;     // the configuration has [verbs]
  bool is_required = false;  // the appliance does not start without the device
  uint32_t shard = 0;        // index of the shard that exchanges messages with peers
  uint64_t threads = 0;
  uint64_t descriptors = 0;
  std::vector<std::string> names;  // of the listed peers
  std::vector<SegmentRequest> segments;
};

// The registrations of one kind of process with the device of [verbs]. Regions: one for each
// segment, if the device takes it whole, and one more for each segment opened to peers, which pins
// its bytes again.
struct VerbsContextPlan {
  std::string process;  // the appliance, or a [[process]]
  uint64_t count = 1;   // how many such processes may run, each with its own context
  uint64_t region_count = 0;
  uint64_t locked_bytes = 0;

  uint64_t total_bytes() const noexcept { return count * locked_bytes; }
};

}  // namespace bedplate
