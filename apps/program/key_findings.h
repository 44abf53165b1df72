// What the counters of a run say of the keys of its configuration: which could be smaller, and
// which should be larger. `bedplate plan --explain` prints it.
//
// It knows no service and no key: a counter's description says which key it measures
// (CounterDescription::measure), and what a value would take is the plan of the same configuration
// with that value. A key that nothing measures is named as unknown, never guessed at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/boot/counters_snapshot.h"
#include "apps/boot/loaded_configuration.h"
#include "platform/result.h"

namespace bedplate {

// A proposed value is the peak and a quarter of it more, at least one, rounded up to what the key
// takes. One that was too small grows by a quarter.
inline constexpr const char* kKeyMargin =
    "proposed: the peak, or what ran out, and 25 % more, rounded to what the key takes";

// Of one key, by all counters that measure it.
struct KeyFinding {
  std::string key;   // "cache.bytes", "cache.tenant[a].bytes"
  std::string unit;  // of what there are so many: of its counter
  uint64_t value = 0;
  std::optional<uint64_t> peak;  // nothing: only what was refused is counted
  uint64_t refused = 0;
  std::optional<uint64_t> proposed;  // nothing: it stays
  int64_t saved_bytes = 0;           // of the plan, with `proposed`; below 0: it takes more
  std::string risk;                  // of a smaller one; may be empty
  std::string obstacle;              // why it stays, though it is too small or could be smaller
};

struct KeyFindings {
  std::vector<KeyFinding> found;
  // Keys whose value is of no measured one, and of which half would take less memory.
  std::vector<std::string> unknown;
};

// `snapshot`: of an appliance that ran `loaded`, or one like it. The keys of `loaded` are changed
// meanwhile, and in the end are as before. Errors (kConfiguration): what plan_appliance says; a
// counter measures a key that its table does not describe.
Result<KeyFindings> find_keys(LoadedConfiguration& loaded, const CountersSnapshot& snapshot);

}  // namespace bedplate
