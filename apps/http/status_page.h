// The page for browsers: whether the appliance serves, the number of raised alerts and their texts,
// the values of /metrics as tables and bars, and the last lines of the log. It updates each second.
//
// It is one text (apps/http/page) without other resources. It knows the pool, its owners and the
// shards; all other counters are shown under their own names. The text is written in parts.
// Threads: any, one at a time for each object. Nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "apps/counters/counters_view.h"
#include "apps/http/lines.h"

namespace bedplate {

// The headers forbid the page to load or send anything elsewhere and to be framed. They allow only
// the page's own script and style, by their hashes.
extern const std::string_view kStatusPageHeaders;

class StatusPage {
 public:
  static constexpr size_t kPieceBytesMin = 20 * 1024;

  // The content for a browser without JavaScript, besides the alerts and the log.
  struct Told {
    bool is_ready = false;
  };
  // If `told` is empty, the page shows nothing of the appliance, and says that a token is needed.
  StatusPage(CountersView counters, std::optional<Told> told) noexcept
      : counters_(counters),
        told_(told),
        alerts_(counters, LineFormat::kListItem),
        log_(LineFormat::kPreformatted) {}

  // Writes the next part into `to` and returns its bytes; 0: all was written.
  // Requires: to.size() >= kPieceBytesMin.
  size_t write(std::span<char> to) noexcept;

 private:
  CountersView counters_;
  std::optional<Told> told_;
  uint32_t part_ = 0;
  AlertLines alerts_;
  LogLines log_;
};

}  // namespace bedplate
