// The counters of an appliance as JSON (docs/counters.md), for `bedplate stats --json` and
// /stats.json. It is made from the file's own description, so it names no counter.
//
// Sets of the runtime appear under their names; sets of services under "services" and the service's
// name. A set with an instance appears under its name and the instance; a service's sets without
// one share the service's object. The appliance, the findings of its pool's audit, the record of
// its crash and its alerts come first. The text is made in parts, so it takes only the memory of
// one part, and some for the order of the sets. Threads: any, each object one at a time. Nothing is
// allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "apps/counters/counter_alerts.h"
#include "apps/counters/counters_snapshot.h"
#include "apps/counters/counters_view.h"
#include "apps/counters/crash_snapshot.h"
#include "apps/counters/json_text.h"
#include "pinned_pool/audit.h"
#include "pinned_pool/owner_name.h"
#include "platform/units.h"

namespace bedplate {

// Writes the value of a counter. Returns false, and writes nothing, if this build does not
// understand the values.
bool write_known_value(const SeenCounter& counter, JsonText* json) noexcept;

// Compares the maps of the appliance with its pool, as far as `counters` describe it: "ok", or the
// defect. `is_running`: false if the appliance's maps can no longer be read.
AuditReport audit_of(const CountersView& counters, bool is_running) noexcept;

class StatsJson {
 public:
  struct Options {
    bool is_running = true;  // as "running"
    // As "crash", if there was one. Ownership: it outlives the text.
    const SeenCrash* crash = nullptr;
    bool is_described = false;  // each counter with its kind, unit and help
    JsonLayout layout = JsonLayout::kOneLine;
  };
  // The largest indivisible part: for example an alert of a foreign file whose text and subject
  // consist of control characters, each of which is six bytes in JSON.
  static constexpr size_t kPieceBytesMin = 16 * 1024;
  static_assert(kPieceBytesMin >= 6 * (kAlertTextBytesMax + 3 * sizeof(OwnerName)) + kKiB);

  StatsJson() noexcept = default;  // empty: write() may not be called
  // `order`: space for the sets that come next, at least one. One pass over all sets fills it, so
  // the text takes one pass for each order.size() sets. Ownership: it outlives this object, and
  // only this object writes it.
  StatsJson(CountersView counters, const AuditReport& audit, const Options& options,
            std::span<uint32_t> order) noexcept;

  // Writes the next part into `to`, as much as fits, and returns how many bytes; 0: the text is
  // complete. Requires: to.size() >= kPieceBytesMin.
  size_t write(std::span<char> to) noexcept;

  // How many sets have been looked at so far to find their order.
  uint64_t look_count() const noexcept { return cursor_.look_count; }

 private:
  enum class Stage : uint8_t {
    kHead,
    kCrash,
    kAlerts,
    kOrder,
    kNextSet,
    kLabels,
    kCounters,
    kValues,
    kEnd
  };
  struct Cursor {
    Stage stage = Stage::kHead;
    uint32_t order_count = 0;  // entries of order_ in use
    uint32_t order_at = 0;     // entries of order_ already written
    uint64_t look_count = 0;
    uint32_t set = 0;
    uint32_t index = 0;  // of the line of the crash, the alert, the label, or the counter
    uint32_t value = 0;  // index of a value of a counter of unknown kind
    bool is_in_set = false;
  };

  void step(Cursor* cursor, JsonText* json) const noexcept;
  void write_head(JsonText* json) const noexcept;
  void write_crash(Cursor* cursor, JsonText* json) const noexcept;
  void write_alert(uint32_t index, JsonText* json) const noexcept;
  void find_order(Cursor* cursor) const noexcept;
  void next_set(Cursor* cursor, JsonText* json) const noexcept;
  void write_counter(Cursor* cursor, JsonText* json) const noexcept;
  void write_values(Cursor* cursor, JsonText* json) const noexcept;
  void end_counter(const SeenCounter& counter, Cursor* cursor, JsonText* json) const noexcept;

  CountersView counters_;
  AuditReport audit_;
  Options options_;
  std::span<uint32_t> order_;
  Cursor cursor_;
  JsonText json_;
};

}  // namespace bedplate
