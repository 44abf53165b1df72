// The records of a counters file, in place: in the appliance's own file, for its readers that may
// not allocate, or in a copy that was checked (counters_snapshot.h).
//
// Threads: any; a view is a pointer. Nothing is allocated. A view is valid as long as the file's
// mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "apps/counters/counters_format.h"
#include "platform/counter.h"
#include "platform/counter_table.h"

namespace bedplate {

class CountersView {
 public:
  CountersView() noexcept = default;  // empty: no function may be called
  explicit CountersView(const CountersHeader* header) noexcept : header_(header) {}

  const CountersHeader& header() const noexcept { return *header_; }
  std::string_view appliance() const noexcept { return text(header_->appliance.text); }
  int pid() const noexcept { return header_->pid; }

  // Requires, here and below: each index is below its count.
  uint32_t set_count() const noexcept { return header_->sets.count; }
  const CounterSetRecord& set(uint32_t index) const noexcept {
    return *reinterpret_cast<const CounterSetRecord*>(record(header_->sets, index));
  }
  // Whether the set is in use: until then its values mean nothing.
  bool is_there(uint32_t index) const noexcept {
    return set(index).is_there.load(std::memory_order_acquire) != 0;
  }
  const CounterRecord& counter(const CounterSetRecord& set, uint32_t index) const noexcept {
    return *reinterpret_cast<const CounterRecord*>(record(header_->counters, set.first + index));
  }
  // The heading of the counter's column in `top`; empty: it has no column.
  std::string_view column(const CounterRecord& counter) const noexcept {
    const bool has_it = header_->counters.record_bytes >= sizeof(CounterRecord);
    return has_it ? text(counter.column) : std::string_view();
  }
  const CounterLabelRecord& label(const CounterSetRecord& set, uint32_t index) const noexcept {
    return *reinterpret_cast<const CounterLabelRecord*>(
        record(header_->labels, set.first_label + index));
  }
  // One value, a text's words, or a histogram's buckets; never empty.
  std::span<const Counter> values(const CounterSetRecord& set,
                                  const CounterRecord& counter) const noexcept {
    return {reinterpret_cast<const Counter*>(begin() + set.values + counter.offset),
            counter.bytes / sizeof(Counter)};
  }

  // Alerts (counter_alerts.h), of all sets together.
  uint32_t alert_count() const noexcept { return alert_records(*header_).count; }
  const CounterAlertRecord& alert(uint32_t index) const noexcept {
    return *reinterpret_cast<const CounterAlertRecord*>(record(alert_records(*header_), index));
  }

  // The text in `field`: it ends at its NUL, or with the field.
  template <size_t kBytes>
  static std::string_view text(const char (&field)[kBytes]) noexcept {
    size_t bytes = 0;
    while (bytes < kBytes && field[bytes] != '\0') ++bytes;
    return {field, bytes};
  }

  // Word number `index` of "a|b|c"; nothing: the list is shorter.
  static std::optional<std::string_view> word_at(std::string_view words, uint64_t index) noexcept {
    for (; index > 0; --index) {
      const size_t end = words.find('|');
      if (end == std::string_view::npos) return {};
      words.remove_prefix(end + 1);
    }
    return words.substr(0, words.find('|'));
  }

 private:
  const std::byte* begin() const noexcept { return reinterpret_cast<const std::byte*>(header_); }
  const std::byte* record(const CounterRecords& records, uint32_t index) const noexcept {
    return begin() + records.offset + uint64_t{index} * records.record_bytes;
  }

  const CountersHeader* header_ = nullptr;
};

inline bool is_role(const CounterSetRecord& set, CounterSetRole role) noexcept {
  return set.role == static_cast<uint32_t>(role);
}

inline bool is_kind(const CounterRecord& counter, CounterKind kind) noexcept {
  return CountersView::text(counter.kind) == to_text(kind);
}

}  // namespace bedplate
