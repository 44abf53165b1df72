// The counters of an appliance as JSON (docs/counters.md): what `bedplate stats --json` prints and
// /stats.json answers. It is made from what the counters file says of itself, so it names no
// counter.
//
// Sets of the runtime stand by their names, those of services below "services" and the service's;
// several of one name, by instance. Before them stand the appliance, the findings of its pool's
// audit, and its signs. The text is made in pieces, so it takes no memory but the piece's, and some
// for the order of the sets. Threads: any, each object one at a time. Nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "apps/counters/counter_signs.h"
#include "apps/counters/counters_snapshot.h"
#include "apps/counters/counters_view.h"
#include "apps/counters/json_text.h"
#include "pinned_pool/audit.h"
#include "pinned_pool/owner_name.h"
#include "platform/units.h"

namespace bedplate {

// The value of a counter. Returns false, and writes nothing: this build does not know what its
// values mean.
bool write_known_value(const SeenCounter& counter, JsonText* json) noexcept;

// Compares the maps of the appliance with its pool, as far as its `counters` describe it: "ok", or
// what is wrong. `is_running`: false if it cannot be asked any more.
AuditReport audit_of(const CountersView& counters, bool is_running) noexcept;

class StatsJson {
 public:
  struct Options {
    bool is_running = true;
    bool is_described = false;  // each counter with its kind, unit and help
    JsonLayout layout = JsonLayout::kOneLine;
  };
  // Parts that belong together take no more: a sign of a foreign file, say, with its text and its
  // subject of control characters, each of which is six bytes in JSON.
  static constexpr size_t kPieceBytesMin = 16 * 1024;
  static_assert(kPieceBytesMin >= 6 * (kSignTextBytesMax + 3 * sizeof(OwnerName)) + kKiB);

  StatsJson() noexcept = default;  // of nothing: not to be written
  // `order`: room for the sets that come next, at least one. To fill it takes a look at all sets:
  // once if it has room for all of them, else once for each order.size() sets. Ownership: it
  // outlives this, which alone writes it.
  StatsJson(CountersView counters, const AuditReport& audit, const Options& options,
            std::span<uint32_t> order) noexcept;

  // Writes the next piece into `to`, as much as fits, and returns how many bytes that are; 0: all
  // was written. Requires: to.size() >= kPieceBytesMin.
  size_t write(std::span<char> to) noexcept;

  // How many sets it has looked at by now to find their order.
  uint64_t look_count() const noexcept { return place_.look_count; }

 private:
  enum class Stage : uint8_t { kHead, kSigns, kOrder, kNextSet, kLabels, kCounters, kValues, kEnd };
  struct Place {
    Stage stage = Stage::kHead;
    uint32_t order_count = 0;  // so many of order_ are filled
    uint32_t order_at = 0;     // and so many of these were written
    uint64_t look_count = 0;
    uint32_t set = 0;
    uint32_t index = 0;  // of the sign, the label, or the counter
    uint32_t value = 0;  // of a counter that this build does not know
    bool is_in_set = false;
  };

  void step(Place* place, JsonText* json) const noexcept;
  void write_head(JsonText* json) const noexcept;
  void write_sign(uint32_t index, JsonText* json) const noexcept;
  void find_order(Place* place) const noexcept;
  void next_set(Place* place, JsonText* json) const noexcept;
  void write_counter(Place* place, JsonText* json) const noexcept;
  void write_values(Place* place, JsonText* json) const noexcept;
  void end_counter(const SeenCounter& counter, Place* place, JsonText* json) const noexcept;

  CountersView counters_;
  AuditReport audit_;
  Options options_;
  std::span<uint32_t> order_;
  Place place_;
  JsonText json_;
};

}  // namespace bedplate
