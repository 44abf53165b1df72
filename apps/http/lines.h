// The raised alerts and the last lines of the log, line by line: as text, as HTML, or as an event's
// data.
//
// The text is written in parts, so it needs memory only for one part. Threads: any, one at a time
// for each object. Nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/counters/counters_view.h"

namespace bedplate {

class TextWriter;

// kListItem: an HTML list item that is marked bad; kPreformatted: a line of <pre>; kEvent: a line
// of an event's data.
enum class LineFormat : uint8_t { kText, kListItem, kPreformatted, kEvent };

class AlertLines {
 public:
  // The longest output of one line.
  static constexpr size_t kPieceBytesMin = 12 * 1024;

  AlertLines(CountersView counters, LineFormat format) noexcept
      : counters_(counters), format_(format) {}

  // Writes as many lines as fit into `to`, and returns their bytes; 0: all were written. Requires:
  // to.size() >= kPieceBytesMin.
  size_t write(std::span<char> to) noexcept;

 private:
  CountersView counters_;
  LineFormat format_;
  uint32_t next_ = 0;
};

// The lines logged before its creation (platform/recent_lines.h), except lines that are
// overwritten before write() reaches them.
class LogLines {
 public:
  // The longest output of one line.
  static constexpr size_t kPieceBytesMin = 4 * 1024;

  // Begins at line `first`; 0: at the oldest line.
  explicit LogLines(LineFormat format, uint64_t first = 0) noexcept;

  // Like AlertLines::write().
  size_t write(std::span<char> to) noexcept;
  // The number of the line after the last of these.
  uint64_t end() const noexcept { return end_; }

 private:
  LineFormat format_;
  uint64_t next_;
  uint64_t end_;
};

}  // namespace bedplate
