#include "apps/counters/counter_sums.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "apps/counters/counters_view.h"
#include "platform/counter.h"
#include "platform/counter_table.h"

namespace bedplate {
namespace {

// Sets of shards that follow one another in the file.
struct Parts {
  uint32_t first = 0;
  uint32_t count = 0;
};

Parts parts_of(const CountersView& view, const CounterSetRecord& sum) noexcept {
  Parts parts;
  for (uint32_t i = 0; i < view.set_count(); ++i) {
    const CounterSetRecord& set = view.set(i);
    const bool is_part = is_role(set, CounterSetRole::kOfShard) && set.count == sum.count &&
                         set.owner == sum.owner && set.name == sum.name && view.is_there(i);
    if (is_part && parts.count == 0) parts.first = i;
    if (!is_part && parts.count > 0) break;
    parts.count += is_part ? 1 : 0;
  }
  return parts;
}

enum class Way { kSum, kMost, kFirst };

Way way_of(const CounterRecord& counter) noexcept {
  if (is_kind(counter, CounterKind::kCounter) || is_kind(counter, CounterKind::kHistogram)) {
    return Way::kSum;
  }
  if (!is_kind(counter, CounterKind::kGauge)) return Way::kFirst;
  const std::string_view unit = CountersView::text(counter.unit);
  return unit == "ns" || unit == "boolean" ? Way::kMost : Way::kSum;
}

// Value number `value` of counter number `index`.
uint64_t add_up(const CountersView& view, const Parts& parts, uint32_t index, size_t value, Way way,
                bool is_gauge) noexcept {
  uint64_t total = 0;
  bool is_known = !is_gauge;
  for (uint32_t i = parts.first; i < parts.first + parts.count; ++i) {
    const CounterSetRecord& part = view.set(i);
    const std::span<const Counter> values = view.values(part, view.counter(part, index));
    if (value >= values.size()) continue;  // of a foreign file
    const uint64_t one = values[value].read();
    if (is_gauge && one == kNoValue) continue;
    if (way == Way::kFirst) return one;
    total = way == Way::kMost ? std::max(total, one) : total + one;
    is_known = true;
  }
  return is_known ? total : kNoValue;
}

uint64_t end_of(const CounterRecords& records) noexcept {
  return records.offset + uint64_t{records.count} * records.record_bytes;
}

}  // namespace

void add_up_shards(CountersHeader& header) noexcept {
  const CountersView view(&header);
  // A foreign file could place values upon records, which were checked.
  const uint64_t records_end = std::max({end_of(header.sets), end_of(header.labels),
                                         end_of(header.counters), end_of(alert_records(header))});
  for (uint32_t i = 0; i < view.set_count(); ++i) {
    const CounterSetRecord& sum = view.set(i);
    if (!is_role(sum, CounterSetRole::kSum) || sum.values < records_end) continue;
    const Parts parts = parts_of(view, sum);
    if (parts.count == 0) continue;
    for (uint32_t k = 0; k < sum.count; ++k) {
      const CounterRecord& counter = view.counter(sum, k);
      const Way way = way_of(counter);
      const bool is_gauge = is_kind(counter, CounterKind::kGauge);
      auto* to = reinterpret_cast<Counter*>(reinterpret_cast<std::byte*>(&header) + sum.values +
                                            counter.offset);
      for (size_t value = 0; value < counter.bytes / sizeof(Counter); ++value) {
        to[value].set(add_up(view, parts, k, value, way, is_gauge));
      }
    }
  }
}

}  // namespace bedplate
