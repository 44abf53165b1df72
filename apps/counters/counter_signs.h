// Signs that something needs a look: counters that say so by rules that were planned with them
// (CounterSign in counter_table.h).
//
// The appliance finds out which of them are there, on its control thread, and writes that into the
// counters file, beside the counters. So `top`, the status page, /metrics and `doctor` have one
// list, need no second look to see what grows, and know no service.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/counters/counters_file.h"
#include "apps/counters/counters_view.h"
#include "platform/text_writer.h"
#include "platform/units.h"

namespace bedplate {

// Why a counter of `set` cannot have this sign: a static text; nullptr: it can.
const char* defect_of(const CounterSign& sign, const CounterSet& set) noexcept;

// Whether its name or its help speaks of what is lost, dropped, refused, broken or wrong. Such a
// counter has a sign, or says why it has none (CounterDescription::no_sign).
bool tells_of_trouble(const CounterDescription& counter) noexcept;

class CounterSigns {
 public:
  // How long a counter is a sign after it grew.
  static constexpr uint64_t kGrownNs = 60 * kNsPerSecond;
  // How long a state, or a standstill, must last before it is a sign.
  static constexpr uint64_t kLastingNs = 5 * kNsPerSecond;

  // Before the seal: it allocates. Requires: `file` was made for `sets`, and outlives this.
  void create(CountersFile& file, std::span<const CounterSet> sets);
  // Looks at all of them. Threads: one.
  void look(uint64_t now_ns) noexcept;

 private:
  struct Watched {
    CounterSign::Rule rule;
    uint64_t limit;
    const Counter* value;
    const Counter* other;  // nullptr: the rule has none
    CounterSignRecord* record;
    uint64_t last_value = 0;
    uint64_t changed_ns = 0;  // 0: it did not since the first look
    uint64_t held_ns = 0;     // since when the condition holds; 0: it does not
    bool is_seen = false;     // there was a first look
  };
  static bool holds(Watched& each, uint64_t now_ns) noexcept;

  CountersFile* file_ = nullptr;
  std::vector<Watched> watched_;
};

// The text of a sign is no longer than this.
inline constexpr size_t kSignTextBytesMax = 2048;

// Whether sign number `index` is there now.
bool is_raised(const CountersView& counters, uint32_t index) noexcept;
// How many signs are there now.
uint32_t raised_sign_count(const CountersView& counters) noexcept;
// Writes the subject of the sign: "shard main", "cache tenants ann".
void write_sign_subject(const CountersView& counters, uint32_t index, TextWriter* writer) noexcept;
// Writes its text, with the current values. Texts of a foreign file may have any bytes.
void write_sign_text(const CountersView& counters, uint32_t index, TextWriter* writer) noexcept;

}  // namespace bedplate
