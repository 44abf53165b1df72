// The answer to /events (server-sent events). Each round has all values that the page shows. The
// data of an event is the answer at the path of the event's name: `signs`, `log` (in later rounds
// only new lines, if any), `metrics`.
//
// A round is written in parts, as the client takes them, from the values at that time: a slow
// client gets fewer rounds, and nothing waits for it. Threads: any, one at a time for each object.
// Nothing is allocated.
//
// Invariants: 1. A round begins after the last one is over. (begin_round) 2. No event is open after
// a round. (begin_round, write) 3. A part fits into `to`. (write)
//
// Source: html.spec.whatwg.org, "Server-sent events".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/counters/counters_view.h"
#include "apps/http/lines.h"
#include "apps/http/metrics_text.h"

namespace bedplate {

class EventText {
 public:
  // Space for the prefixes of the lines, besides a part of metrics.
  static constexpr size_t kPrefixesBytes = 6 * 1024;
  static constexpr size_t kPieceBytesMin = MetricsText::kPieceBytesMin + kPrefixesBytes;

  // The first round has begun.
  explicit EventText(CountersView counters) noexcept
      : counters_(counters),
        alerts_(counters, LineFormat::kEvent),
        log_(LineFormat::kEvent),
        metrics_(counters, MetricsFormat::kPrometheus) {}

  // Begins another round. Requires: write() has returned 0.
  void begin_round() noexcept;
  // Writes the next part of the round into `to` and returns its bytes; 0: the round is over.
  // Requires: to.size() >= kPieceBytesMin.
  size_t write(std::span<char> to) noexcept;

 private:
  enum class Part : uint8_t { kAlerts, kLog, kMetrics, kOver };

  CountersView counters_;
  Part part_ = Part::kAlerts;
  bool has_name_ = false;  // the event of the current part has begun
  AlertLines alerts_;
  LogLines log_;
  MetricsText metrics_;
};

}  // namespace bedplate
