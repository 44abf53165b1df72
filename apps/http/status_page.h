// The page that a browser gets: if the appliance serves or how much needs a look, the signs, the
// values of /metrics as tables and bars, and the last lines of the log, each second.
//
// It is one text (apps/http/page) without any other resource. It knows the pool, its owners and the
// shards; whatever else has counters is shown by their names. The text is made in pieces. Threads:
// any, each object one at a time. Nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "apps/counters/counters_view.h"
#include "apps/http/lines.h"

namespace bedplate {

// Headers: nothing is loaded, sent elsewhere or put into another page's frame, and no program and
// no style but the page's own are taken: their hashes are here.
extern const std::string_view kStatusPageHeaders;

class StatusPage {
 public:
  static constexpr size_t kPieceBytesMin = 20 * 1024;

  // The content from the start, for a browser without JavaScript, beside the signs and the log.
  struct Told {
    bool is_ready = false;
  };
  // `told` empty: the page has nothing of the appliance in it, and says that a token is needed.
  StatusPage(CountersView counters, std::optional<Told> told) noexcept
      : counters_(counters),
        told_(told),
        signs_(counters, LineFormat::kListItem),
        log_(LineFormat::kPreformatted) {}

  // Writes the next piece into `to` and returns how many bytes that are; 0: all was written.
  // Requires: to.size() >= kPieceBytesMin.
  size_t write(std::span<char> to) noexcept;

 private:
  CountersView counters_;
  std::optional<Told> told_;
  uint32_t part_ = 0;
  SignLines signs_;
  LogLines log_;
};

}  // namespace bedplate
