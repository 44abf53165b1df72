// The model of `top`: an appliance's sections of rows and columns, made from its counters' changes
// in an interval. It knows no service: a section has the sets of one name, with a row for each
// instance and a column for each counter, by kind and unit alone.
//
// - A counter that grew in any row is shown as a rate, in ns as its share of the time; else as its
//   total.
// - A gauge is shown as its value; "used_bytes" with "limit_bytes" or "bytes" also as a bar.
// - A histogram that grew is shown as its rate, and as p50, p99 and maximum of the interval.
// - Columns that are 0 in all rows are left out. So are rows that are 0 in all columns, unless the
//   set has labels or a single row.
//
// The runtime's sets about shards and sources come first, then those of services, then the
// runtime's other sets. The runtime's sets segment and way_back, which stay as they are from the
// seal on, and the heap's size classes are left out; `stats` has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/program/counters/counter_changes.h"

namespace bedplate {

enum class TopAspect : uint8_t { kLabel, kBar, kShare, kRate, kPercentile, kLevel, kTotal };

struct TopColumn {
  std::string counter;  // as in the file; a label's name
  std::string name;     // the heading: "busy", "read p99"
  TopAspect aspect = TopAspect::kLevel;
};

struct TopValue {
  std::string text;   // "-": no value
  double number = 0;  // the sort key
};

struct TopRow {
  std::string instance;  // empty: the section's only row
  std::vector<TopValue> values;
};

struct TopSection {
  std::string title;  // "shard", "cache gets"
  std::vector<TopColumn> columns;
  std::vector<TopRow> rows;
  size_t idle_row_count = 0;            // rows left out
  std::vector<std::string> notes = {};  // the alerts, instead of columns and rows

  // Whether it has a single row without a name: shown as a list, not as a table.
  bool is_list() const noexcept { return rows.size() == 1 && rows[0].instance.empty(); }
};

// One appliance's view at one look.
struct TopView {
  std::string path;  // as TopAppliance's
  std::string name;
  std::string headline;
  std::vector<TopSection> sections;
  std::vector<std::string> alerts;  // one sentence for each alert
};

// The sections, in the order of the screen. A section whose counters are all 0 is left out, unless
// its set has labels.
std::vector<TopSection> top_sections(const std::vector<SetChange>& changes);

// The section of the alerts, as sentences; nothing: no alert is raised.
std::optional<TopSection> alerts_section(const CountersSnapshot& now);

// Short texts: a rate is "0.5/s", "1234/s", "12.3k/s" or "1.5 MiB/s"; a share of 0.12 is "12%"; an
// amount is "12.3M".
std::string rate_text(double per_second, std::string_view unit);
std::string share_text(double share);
std::string amount_text(uint64_t value, std::string_view unit);

}  // namespace bedplate
