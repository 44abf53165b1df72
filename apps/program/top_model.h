// What `top` shows of an appliance: sections of rows and columns, made of what its counters did in
// an interval. It knows no service: sections are sets of one name, rows their instances, columns
// their counters, by kind and unit alone.
//
// - A counter that grew is a rate; of ns it is the share of the time. One that did not, its total.
// - A gauge is as it is; a pair "used_bytes" of "limit_bytes" or "bytes" is a bar as well.
// - A histogram is how often, p50, p99 and the longest of the interval.
// - What is 0 in all rows is left out, and rows that are 0 in all columns.
//
// Of the runtime's own sets those come first that say what goes on; those that never change
// (`stats` has them) and the heap's sizes of blocks are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/program/counter_changes.h"

namespace bedplate {

enum class TopAspect : uint8_t { kLabel, kBar, kShare, kRate, kPercentile, kLevel, kTotal };

struct TopColumn {
  std::string counter;  // as the file names it; of a label that
  std::string name;     // what stands above it: "busy", "read p99"
  TopAspect aspect = TopAspect::kLevel;
};

struct TopValue {
  std::string text;   // "-": there is none
  double number = 0;  // to sort by
};

struct TopRow {
  std::string instance;  // empty: the section has but one
  std::vector<TopValue> values;
};

struct TopSection {
  std::string title;  // "shard", "cache gets"
  std::vector<TopColumn> columns;
  std::vector<TopRow> rows;
  size_t idle_row_count = 0;            // that are left out
  std::vector<std::string> notes = {};  // instead of columns and rows: what needs a look

  // Of one instance without a name: shown as a list, not as a table.
  bool is_list() const noexcept { return rows.size() == 1 && rows[0].instance.empty(); }
};

// One appliance as it was seen.
struct TopView {
  std::string name;
  std::string headline;
  std::vector<TopSection> sections;
  std::vector<std::string> signs;  // what needs a look, a sentence each
};

// In the order in which they are shown. A section whose counters are all 0 has no columns and is
// not there.
std::vector<TopSection> top_sections(const std::vector<SetChange>& changes);

// What needs a look, as sentences, ahead of them; nothing: nothing does.
std::optional<TopSection> signs_section(const CountersSnapshot& now);

// "0.5/s", "1234/s", "12.3k/s", "1.5 MiB/s"; "12%", "0.3%"; "12.3M": few columns wide.
std::string rate_text(double per_second, std::string_view unit);
std::string share_text(double share);
std::string amount_text(uint64_t value, std::string_view unit);

}  // namespace bedplate
