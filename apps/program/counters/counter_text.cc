#include "apps/program/counters/counter_text.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "platform/histogram.h"
#include "platform/units.h"

namespace bedplate {
namespace {

std::string histogram_text(const SeenCounter& counter) {
  std::string text;
  for (const Percentile& each : kPercentiles) {
    const uint64_t value = Histogram::percentile_of(counter.values, each.share);
    text += std::string(each.name) + " " + value_text(value, counter.unit, true) + ", ";
  }
  return text + "of " + std::to_string(Histogram::count_of(counter.values));
}

}  // namespace

std::string value_text(uint64_t value, std::string_view unit, bool with_unit) {
  if (unit == "bytes") return format_rounded_bytes(value).text;
  if (unit == "ns") return format_rounded_ns(value).text;
  if (unit == "boolean" && value <= 1) return value == 1 ? "yes" : "no";
  if (unit == "address") {
    char text[24];
    std::snprintf(text, sizeof text, "0x%" PRIx64, value);
    return text;
  }
  std::string text = std::to_string(value);
  if (with_unit && !unit.empty()) text += " " + std::string(unit);
  return text;
}

std::string counter_text(const SeenCounter& counter, bool with_unit) {
  if (counter.is_histogram()) return histogram_text(counter);
  if (const auto words = counter.read_words()) return *words;
  if (counter.is(CounterKind::kGauge) && counter.read() == kNoValue) return "-";
  if (counter.is_number()) {
    // If the name contains the unit, the text omits the unit: "registrations 7".
    const bool is_named = counter.name.find(counter.unit) != std::string_view::npos;
    return value_text(counter.read(), counter.unit, with_unit && !is_named);
  }
  constexpr size_t kShownMax = 4;
  std::string text = std::string(counter.kind) + ":";
  for (const Counter& value : counter.values.first(std::min(counter.values.size(), kShownMax))) {
    text += " " + std::to_string(value.read());
  }
  if (counter.values.size() > kShownMax) text += " ...";
  return text + " " + std::string(counter.unit);
}

JsonValue counter_json(const SeenCounter& counter) {
  if (counter.is_histogram()) {
    JsonValue json = {{"count", Histogram::count_of(counter.values)}};
    for (const Percentile& each : kPercentiles) {
      json[each.key] = Histogram::percentile_of(counter.values, each.share);
    }
    return json;
  }
  if (const auto words = counter.read_words()) return *words;
  if (counter.is_number()) {
    const uint64_t value = counter.read();
    if (counter.is(CounterKind::kGauge) && value == kNoValue) return {};
    if (counter.unit == "boolean" && value <= 1) return value == 1;
    return value;
  }
  JsonValue numbers = JsonValue::array();
  for (const Counter& value : counter.values) numbers.push_back(value.read());
  return {{"kind", counter.kind}, {"unit", counter.unit}, {"values", std::move(numbers)}};
}

bool is_zero(const SeenCounter& counter) noexcept {
  return std::all_of(counter.values.begin(), counter.values.end(),
                     [](const Counter& value) { return value.read() == 0; });
}

}  // namespace bedplate
