// Alerts: rules over counters, planned together with the counters (CounterAlert, in
// platform/counter_table.h).
//
// The appliance evaluates the rules on its main thread and writes the result into the counters
// file, beside the counters. So `top`, the status page, /metrics and `doctor` show the same alerts,
// need no second reading to see growth, and know no service.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/counters/counters_file.h"
#include "apps/counters/counters_view.h"
#include "platform/text_writer.h"
#include "platform/units.h"

namespace bedplate {

// Returns why no counter of `set` can have this rule, as a static text; nullptr: a counter can.
const char* defect_of(const CounterAlert& alert, const CounterSet& set) noexcept;

// Whether its name or its help speaks of loss, drops, refusals, or broken or wrong data. A gauge
// that is no boolean counts only by its name; texts, states, flags and histograms never count. Such
// a counter has a rule, or says why it has none (CounterDescription::no_alert).
bool tells_of_trouble(const CounterDescription& counter) noexcept;

class CounterAlerts {
 public:
  // An alert on growth stays this long after the counter last grew.
  static constexpr uint64_t kGrownNs = 60 * kNsPerSecond;
  // A state, or a standstill, must last this long before it raises an alert.
  static constexpr uint64_t kLastingNs = 5 * kNsPerSecond;

  // Call it before the seal: it allocates. Requires: `file` was made for `sets`, and outlives this.
  void create(CountersFile& file, std::span<const CounterSet> sets);
  // Evaluates the rules of all sets in use. `now_ns`: monotonic_ns(). Threads: one.
  void look(uint64_t now_ns) noexcept;

 private:
  struct Watched {
    CounterAlert::Rule rule;
    uint64_t limit;
    const Counter* value;
    const Counter* other;  // nullptr: the rule has no second counter
    CounterAlertRecord* record;
    uint64_t last_value = 0;
    uint64_t changed_ns = 0;  // 0: no change since the first look
    uint64_t held_ns = 0;     // since when the condition holds; 0: it does not
    bool is_seen = false;     // the first look was made
  };
  static bool holds(Watched& each, uint64_t now_ns) noexcept;

  CountersFile* file_ = nullptr;
  std::vector<Watched> watched_;
};

// The longest text of an alert.
inline constexpr size_t kAlertTextBytesMax = 2048;

// Whether alert number `index` is raised.
bool is_raised(const CountersView& counters, uint32_t index) noexcept;
// How many alerts are raised.
uint32_t raised_alert_count(const CountersView& counters) noexcept;
// Writes the subject of the alert: "shard main", "cache tenants ann".
void write_alert_subject(const CountersView& counters, uint32_t index, TextWriter* writer) noexcept;
// Writes the alert's text, with the current values. Texts of a foreign file may have any bytes.
void write_alert_text(const CountersView& counters, uint32_t index, TextWriter* writer) noexcept;

}  // namespace bedplate
