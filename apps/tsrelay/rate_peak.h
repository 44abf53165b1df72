// The largest rate of a count that is looked at now and then, over a second or more at a time.
// Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "platform/units.h"

namespace bedplate::relay {

class RatePeak {
 public:
  // Looks at `count`, which never falls. Returns its largest growth in a second so far.
  uint64_t look(uint64_t count, uint64_t now_ns) noexcept {
    if (!has_begun_ || now_ns < since_ns_) {
      begin(count, now_ns);
    } else if (now_ns - since_ns_ >= kNsPerSecond) {
      constexpr auto kOneSecond = static_cast<double>(kNsPerSecond);
      const double seconds = static_cast<double>(now_ns - since_ns_) / kOneSecond;
      const double rate = static_cast<double>(count - since_count_) / seconds;
      peak_ = std::max(peak_, static_cast<uint64_t>(rate + 0.5));
      begin(count, now_ns);
    }
    return peak_;
  }

 private:
  void begin(uint64_t count, uint64_t now_ns) noexcept {
    has_begun_ = true;
    since_count_ = count;
    since_ns_ = now_ns;
  }

  bool has_begun_ = false;
  uint64_t since_count_ = 0;
  uint64_t since_ns_ = 0;
  uint64_t peak_ = 0;
};

}  // namespace bedplate::relay
