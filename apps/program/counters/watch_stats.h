// `stats --watch`: reads the counters file once a second. The appliance does nothing for it.
#pragma once

#include "apps/counters/counters_reader.h"

namespace bedplate {

// Prints all changes once a second, as text or as one JSON object a line, until the appliance ends.
// Returns the exit code.
int watch_stats(const CountersReader& reader, bool as_json);

}  // namespace bedplate
