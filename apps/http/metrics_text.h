// The counters of an appliance for Prometheus: its text format 0.0.4, or OpenMetrics 1.0.
//
// The text is generated from the descriptions in the counters file, so this file names no counter.
// A metric's name is `bedplate_`, the set (for a service: its name, plus the set's if the set has
// an instance), `_` and the counter. Times are in seconds; a counter ends with `_total`. The set's
// instance is a label with the name of the set, or "shard" if the instance is one. The set's own
// labels are labels of a metric that ends with `_info`. Each word of a state or of flags is a
// label, too, with the value 1 if it holds. A histogram has a bucket for each power of two. Its sum
// takes the largest value of each finer bucket, so it is at most a sixteenth too large. A text, and
// a gauge without a current value, have no line.
// An alert (counter_alerts.h) is bedplate_sign, 1 or 0. The appliance's name is a label of
// bedplate_appliance_info, and its age is bedplate_appliance_uptime_seconds: the difference of two
// texts is the time between them, whatever delay each had on its way. For the status page, comments
// say which counters are seen at a glance (counter_table.h); OpenMetrics does not allow them.
// Sources: prometheus.io/docs/instrumenting/exposition_formats; OpenMetrics 1.0.0.
//
// The text is written in parts, so it needs memory only for one part. Threads: any, one at a time
// for each object. Nothing is allocated.
//
// Invariants: 1. A unit (see kPieceBytesMin) fits into a part, so no part is empty before the end.
// (write) 2. A line belongs to a set of the group being written, and to one of its counters.
// (write_sample)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/counters/counters_view.h"

namespace bedplate {

class TextWriter;

enum class MetricsFormat : uint8_t { kPrometheus, kOpenMetrics };

class MetricsText {
 public:
  // The longest unit: a line with its metric's head, or a histogram.
  static constexpr size_t kPieceBytesMin = 20 * 1024;

  MetricsText() noexcept = default;
  MetricsText(CountersView counters, MetricsFormat format) noexcept
      : counters_(counters), format_(format) {}

  // Writes as many units as fit into `to`, and returns their bytes; 0: all were written.
  // Requires: to.size() >= kPieceBytesMin.
  size_t write(std::span<char> to) noexcept;

 private:
  // The position, as nested loops: over metrics, in a metric over sets, in a set over lines.
  struct Cursor {
    uint32_t set = 0;      // first set of its group, once that is found
    uint32_t counter = 0;  // in the set; the index after the last: its labels
    uint32_t member = 0;   // set of the group that is being written
    uint32_t line = 0;     // in the set
    uint32_t alert = 0;    // after all sets
    bool has_name = false;
    bool is_found = false;
    bool has_head = false;
    bool is_ended = false;
  };

  bool is_first_of_group(uint32_t set) const noexcept;
  bool is_of_group(uint32_t set, uint32_t first) const noexcept;
  bool next_set(Cursor* cursor) const noexcept;
  bool write_line(Cursor* cursor, TextWriter* writer) const noexcept;
  void write_appliance(TextWriter* writer) const noexcept;
  void write_head(const Cursor& cursor, TextWriter* writer) const noexcept;
  void write_column(const Cursor& cursor, TextWriter* writer) const noexcept;
  bool write_sample(Cursor* cursor, TextWriter* writer) const noexcept;
  bool write_labels(Cursor* cursor, TextWriter* writer) const noexcept;
  bool write_histogram(Cursor* cursor, TextWriter* writer) const noexcept;
  bool write_words(Cursor* cursor, TextWriter* writer) const noexcept;
  bool write_alert(Cursor* cursor, TextWriter* writer) const noexcept;
  void write_name(const Cursor& cursor, TextWriter* writer) const noexcept;
  bool begin_sample(Cursor* cursor, const char* suffix, TextWriter* writer) const noexcept;

  CountersView counters_;
  MetricsFormat format_ = MetricsFormat::kPrometheus;
  Cursor cursor_;
};

}  // namespace bedplate
