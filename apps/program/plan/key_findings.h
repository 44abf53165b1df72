// Findings from a run's counters about its configuration's keys: some could be smaller, some should
// be larger. `bedplate plan --explain` prints them.
//
// The code knows no service and no key. A counter's description names the key that it measures
// (CounterDescription::measure). The code plans the same configuration with another value to find
// the memory that this value takes. It never estimates a key without a measuring counter: such a
// key is unknown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/boot/loaded_configuration.h"
#include "apps/counters/counters_snapshot.h"
#include "platform/result.h"

namespace bedplate {

// A proposed value is the peak plus a quarter, at least one more, rounded up to a valid value of
// the key. A value that was too small grows by a quarter of what ran out, or to the peak plus a
// quarter if that is more.
inline constexpr const char* kKeyMargin =
    "proposed: the peak, or what ran out, plus 25 %, rounded to what the key accepts";

// One key's finding, from all counters that measure the key.
struct KeyFinding {
  std::string key;               // "cache.bytes", "cache.tenant[a].bytes"
  std::string unit;              // the counter's unit
  uint64_t value = 0;            // of the key, or the default that applied in the run
  std::optional<uint64_t> peak;  // nothing: no counter has a peak, only refusals
  uint64_t refused = 0;
  std::optional<uint64_t> proposed;  // nothing: the value stays
  int64_t saved_bytes = 0;           // by `proposed`; below 0: `proposed` takes more
  std::string risk;                  // of a smaller value; may be empty
  std::string obstacle;              // why a bad value stays; empty: no obstacle
};

struct KeyFindings {
  std::vector<KeyFinding> found;
  // Keys that no counter measures, and whose half value would take less memory.
  std::vector<std::string> unknown;
};

// `snapshot` is from an appliance that ran `loaded`, or a similar configuration. Changes the keys
// of `loaded` meanwhile, and restores them. Errors (kConfiguration): those of plan_appliance; a
// counter measures a key that does not exist.
Result<KeyFindings> find_keys(LoadedConfiguration& loaded, const CountersSnapshot& snapshot);

}  // namespace bedplate
