// The values of counters as text for people, and as JSON, by kind and unit alone. An unknown kind
// is shown as raw numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "apps/counters/counters_reader.h"
#include "apps/program/json_output.h"

namespace bedplate {

// "174 MiB", "12.5 us", "yes", "0x10000000", "17 requests"; "17" without `with_unit`.
std::string value_text(uint64_t value, std::string_view unit, bool with_unit);

// The text of any counter. `with_unit`: counts name their unit ("17 requests"), unless the
// counter's name contains it.
std::string counter_text(const SeenCounter& counter, bool with_unit);

// The JSON of any counter: a number, or null if it has none; true or false; a state's word; for a
// histogram an object of count, p50, p90, p99, p999 and max; for an unknown kind, the kind, the
// unit and all numbers.
JsonValue counter_json(const SeenCounter& counter);

// Whether it is 0 or an empty histogram.
bool is_zero(const SeenCounter& counter) noexcept;

}  // namespace bedplate
