// The signs (what needs a look) and the last lines of the log, line by line: as text, as HTML, or
// as an event's data.
//
// The text is made in pieces, so it takes no memory but the piece's. Threads: any, each object one
// at a time. Nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/counters/counters_view.h"

namespace bedplate {

class TextWriter;

// kListItem: an item of a list in HTML that is bad; kPreformatted: a line of <pre>; kEvent: a line
// of an event's data.
enum class LineFormat : uint8_t { kText, kListItem, kPreformatted, kEvent };

class SignLines {
 public:
  // The most that one line takes.
  static constexpr size_t kPieceBytesMin = 12 * 1024;

  SignLines(CountersView counters, LineFormat format) noexcept
      : counters_(counters), format_(format) {}

  // Writes lines into `to`, as many as fit, and returns how many bytes that are; 0: all were
  // written. Requires: to.size() >= kPieceBytesMin.
  size_t write(std::span<char> to) noexcept;

 private:
  CountersView counters_;
  LineFormat format_;
  uint32_t next_ = 0;
};

// The lines that were logged when this was made (platform/recent_lines.h), without those that are
// gone when it writes.
class LogLines {
 public:
  static constexpr size_t kPieceBytesMin = 4 * 1024;

  // Begins at line `first`; 0: at the oldest.
  explicit LogLines(LineFormat format, uint64_t first = 0) noexcept;

  // As above.
  size_t write(std::span<char> to) noexcept;
  // The number of the first line after these.
  uint64_t end() const noexcept { return end_; }

 private:
  LineFormat format_;
  uint64_t next_;
  uint64_t end_;
};

}  // namespace bedplate
