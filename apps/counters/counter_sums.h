// The sums of counters that a service keeps for each of several shards. They are made here alone.
//
// Each shard has a set of its own, with one writer; the service plans them by one name
// (ServicePlan::shard_counters), and the plan adds the set of their sum, without an instance, as a
// service on one shard has it. So all readers show the service as a whole and each shard beside it.
// The appliance's main thread makes the sums about twice a second, before it looks for alerts. A
// snapshot of the file makes them again in its copy, so there they are as recent as their parts.
#pragma once

#include "apps/counters/counters_format.h"

namespace bedplate {

// Writes the sums of all sets of shards into the file that begins with `header`. Counters, gauges
// and histograms are added; of gauges in ns and booleans the sum is the largest; a gauge of a shard
// without a value (kNoValue) is left out. A state, flags or a text is that of the first shard.
// Requires: the offsets of the file were checked. Threads: one for each file; allocates nothing.
void add_up_shards(CountersHeader& header) noexcept;

}  // namespace bedplate
