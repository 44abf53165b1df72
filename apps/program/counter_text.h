// The values of counters as people read them, and as JSON has them, by kind and unit alone. What
// this build does not know is shown as it is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "apps/boot/counters_reader.h"
#include "apps/program/json_output.h"

namespace bedplate {

// "174 MiB", "12.5 us", "yes", "0x10000000", "17 requests"; "17" where the unit is not to be named.
std::string value_text(uint64_t value, std::string_view unit, bool with_unit);

// Of any counter. `with_unit`: counts name theirs ("17 requests").
std::string counter_text(const SeenCounter& counter, bool with_unit);

// A number; null: it has none; true or false; the word of a state; of a histogram an object: count,
// p50, p90, p99, p999, max; of what this build does not know, kind and numbers.
Json counter_json(const SeenCounter& counter);

// Whether there is nothing to tell: 0, or an empty histogram.
bool is_zero(const SeenCounter& counter) noexcept;

}  // namespace bedplate
