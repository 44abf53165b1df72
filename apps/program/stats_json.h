// The counters of an appliance as JSON (docs/counters.md), by the file's own description: this
// names no counter.
#pragma once

#include <vector>

#include "apps/boot/counters_snapshot.h"
#include "apps/program/json_output.h"

namespace bedplate {

// Where a set's counters stand in `json`, which is made there if need be.
Json& place_of(const SeenSet& set, Json* json);

// Sets of the runtime by their names, those of services below "services" and the service's; of what
// there are several, by instance. `is_described`: each counter with its kind, unit and help.
Json sets_json(const std::vector<SeenSet>& sets, bool is_described);

}  // namespace bedplate
