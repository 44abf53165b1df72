// What `top` shows, as JSON.
//
// Tested by tests/system/top_test.py.
#pragma once

#include "apps/program/json_output.h"
#include "apps/program/top_watch.h"

namespace bedplate {

// An appliance with all of its counters, where `stats --json` has them: a counter is
// {"total", "per_second"}, one of ns has "share" as well; a histogram is that of the interval, with
// "per_second". One that cannot be read has "error".
Json top_json(const TopAppliance& appliance);

}  // namespace bedplate
