// The output of `top` as JSON.
#pragma once

#include "apps/program/json_output.h"
#include "apps/program/top/top_watch.h"

namespace bedplate {

// An appliance with all its counters, at their positions in `stats --json`. A counter is {"total",
// "per_second"}; a ns counter also has "share"; a histogram is that of the interval, with
// "per_second". Without an earlier value the rate and the share are null, and a histogram has no
// rate. An appliance that cannot be read has only "path" and "error".
JsonValue top_json(const TopAppliance& appliance);

}  // namespace bedplate
