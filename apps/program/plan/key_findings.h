// Findings from a run's counters about its configuration's keys: which could be smaller, and which
// should be larger. `bedplate plan --explain` prints them.
//
// The code knows no service and no key: a counter's description says which key it measures
// (CounterDescription::measure), and a value's memory comes from planning the same configuration
// with that value. A key without a measuring counter is unknown, never guessed at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/boot/loaded_configuration.h"
#include "apps/counters/counters_snapshot.h"
#include "platform/result.h"

namespace bedplate {

// A proposed value is the peak and a quarter more, at least one more, rounded up to a value that
// the key takes. A value that was too small grows by a quarter.
inline constexpr const char* kKeyMargin =
    "proposed: the peak, or what ran out, and 25 % more, rounded to what the key takes";

// One key's finding, from all counters that measure it.
struct KeyFinding {
  std::string key;   // "cache.bytes", "cache.tenant[a].bytes"
  std::string unit;  // the counter's unit
  uint64_t value = 0;
  std::optional<uint64_t> peak;  // nothing: only refusals are counted
  uint64_t refused = 0;
  std::optional<uint64_t> proposed;  // nothing: it stays
  int64_t saved_bytes = 0;           // in the plan with `proposed`; below 0: it takes more
  std::string risk;                  // of a smaller value; may be empty
  std::string obstacle;              // why it stays, though it is too small or could be smaller
};

struct KeyFindings {
  std::vector<KeyFinding> found;
  // Keys that no counter measures, and half of whose value would take less memory.
  std::vector<std::string> unknown;
};

// `snapshot`: of an appliance that ran `loaded`, or one like it. Changes the keys of `loaded`
// meanwhile, and restores them. Errors (kConfiguration): those of plan_appliance; a counter
// measures a key that its table does not describe.
Result<KeyFindings> find_keys(LoadedConfiguration& loaded, const CountersSnapshot& snapshot);

}  // namespace bedplate
