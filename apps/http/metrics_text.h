// The counters of an appliance as Prometheus reads them: its text format 0.0.4, or OpenMetrics 1.0.
//
// It is made from the counters file's own descriptions, so it names no counter. A name is
// `bedplate_`, the set (of a service: its name, and the set's where there are several of it), `_`
// and the counter; times are seconds; a counter ends with `_total`. The set's instance is a label,
// and so is each word of a state or of flags, with 1 if it holds. A histogram has a bucket for each
// power of two; its sum is made of the largest value of each finer bucket, so it is at most a
// sixteenth too large. A counter without a value now has no line.
// A sign (counter_signs.h) is bedplate_sign, 1 or 0. The appliance's name is a label of
// bedplate_appliance_info, and its age bedplate_appliance_uptime_seconds: its difference in two
// texts is the time in between, however long each was on its way. Comments say which counters are
// seen at a glance (counter_table.h), for the status page; OpenMetrics has no room for them.
// Sources: prometheus.io/docs/instrumenting/exposition_formats; OpenMetrics 1.0.0.
//
// The text is made in pieces, so it takes no memory but the piece's. Threads: any, each object one
// at a time. Nothing is allocated.
//
// Invariants: 1. A unit (see kPieceBytesMin) fits into a piece, so no piece is empty before the
// end. (write) 2. A line belongs to a set of the group being written, and to one of its counters.
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
  // The most that a unit takes: a line with its metric's head, or a histogram.
  static constexpr size_t kPieceBytesMin = 20 * 1024;

  MetricsText() noexcept = default;
  MetricsText(CountersView counters, MetricsFormat format) noexcept
      : counters_(counters), format_(format) {}

  // Writes as many units into `to` as fit, and returns how many bytes that are; 0: all were
  // written. Requires: to.size() >= kPieceBytesMin.
  size_t write(std::span<char> to) noexcept;

 private:
  // The position: metric by metric, in a metric set by set, in a set line by line.
  struct Place {
    uint32_t set = 0;      // the first of its group, once that was found
    uint32_t counter = 0;  // of the set; one more: its labels
    uint32_t member = 0;   // the set of the group that is written
    uint32_t line = 0;     // of it
    uint32_t sign = 0;     // once all sets are written
    bool has_name = false;
    bool is_found = false;
    bool has_head = false;
    bool is_ended = false;
  };

  bool is_first_of_group(uint32_t set) const noexcept;
  bool is_of_group(uint32_t set, uint32_t first) const noexcept;
  bool next_set(Place* place) const noexcept;
  bool write_line(Place* place, TextWriter* writer) const noexcept;
  void write_appliance(TextWriter* writer) const noexcept;
  void write_head(const Place& place, TextWriter* writer) const noexcept;
  void write_column(const Place& place, TextWriter* writer) const noexcept;
  bool write_sample(Place* place, TextWriter* writer) const noexcept;
  bool write_labels(Place* place, TextWriter* writer) const noexcept;
  bool write_histogram(Place* place, TextWriter* writer) const noexcept;
  bool write_words(Place* place, TextWriter* writer) const noexcept;
  bool write_sign(Place* place, TextWriter* writer) const noexcept;
  void write_name(const Place& place, TextWriter* writer) const noexcept;
  bool begin_sample(Place* place, const char* suffix, TextWriter* writer) const noexcept;

  CountersView counters_;
  MetricsFormat format_ = MetricsFormat::kPrometheus;
  Place place_;
};

}  // namespace bedplate
