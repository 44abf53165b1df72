// The counters of a service that is placed on several shards: a set for each shard, and their sum.
//
// The service is told as one: the sum has the place that the set of a service on one shard has, and
// it alone raises alerts. apps/counters/counter_sums.h makes its values. Threads: any (it
// allocates).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "platform/counter_table.h"

namespace bedplate {

// Makes `set` that of the shard `name`, one of `shard_count` that have it. One shard: as it is.
CounterSet on_shard(CounterSet set, std::string_view name, size_t shard_count);

// Adds the sums of all sets of shards. First come all other sets and the sums, in their order, then
// the sets of shards: those of one name follow one another, and raise no alerts.
void add_sums(std::vector<CounterSet>* sets);

}  // namespace bedplate
