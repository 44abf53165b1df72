// The output of `top` as JSON.
#pragma once

#include "apps/program/json_output.h"
#include "apps/program/top/top_watch.h"

namespace bedplate {

// An appliance with all of its counters, at their places in `stats --json`: a counter is {"total",
// "per_second"}, and a ns counter has "share" as well; a histogram is that of the interval, with
// "per_second". An appliance that cannot be read has "error".
Json top_json(const TopAppliance& appliance);

}  // namespace bedplate
