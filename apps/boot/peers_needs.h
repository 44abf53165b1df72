// The needs of an appliance's peers ([verbs]). libbedplate-verbs.a tells them to the plan
// (peers.h); the runtime does not read [verbs] itself.
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

// The registrations of one kind of process with the device of [verbs]. Each segment for the device
// is one region, if the device takes it whole. The memory that is open to peers has further
// regions, which pin its bytes again: each export, the shared part of the provider's memory and,
// with remote = "read", the heap and segment 0.
struct VerbsContextPlan {
  std::string process;  // the appliance, or a [[process]]
  uint64_t count = 1;   // how many such processes may run, each with its own context
  uint64_t region_count = 0;
  uint64_t locked_bytes = 0;

  uint64_t total_bytes() const noexcept { return count * locked_bytes; }
};

}  // namespace bedplate
