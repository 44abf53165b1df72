#include "platform/units.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <iterator>
#include <limits>
#include <span>

#include "platform/text_words.h"

namespace bedplate {
namespace {

struct Unit {
  uint64_t one;
  const char* name;
};
constexpr Unit kByteUnits[] = {
    {kTiB, "TiB"}, {kGiB, "GiB"}, {kMiB, "MiB"}, {kKiB, "KiB"}, {1, "bytes"}};
constexpr Unit kTimeUnits[] = {{kNsPerSecond, "s"}, {kNsPerMs, "ms"}, {kNsPerUs, "us"}, {1, "ns"}};

constexpr uint64_t kSecondsPerMinute = 60;
constexpr uint64_t kSecondsPerHour = 60 * kSecondsPerMinute;

UnitText number_text(uint64_t number, const char* unit) noexcept {
  UnitText result;
  std::snprintf(result.text, sizeof result.text, "%" PRIu64 " %s", number, unit);
  return result;
}

UnitText format_rounded(uint64_t value, std::span<const Unit> units) noexcept {
  size_t i = 0;
  // 1023.5 KiB would be rounded to 1024 KiB: it becomes 1.0 MiB.
  while (i + 1 < units.size() && value < units[i].one - units[i + 1].one / 2) ++i;
  const Unit& unit = units[i];
  const uint64_t whole = value / unit.one, rest = value % unit.one;
  if (rest == 0) return number_text(whole, unit.name);
  const uint64_t tenths = whole * 10 + (rest * 10 + unit.one / 2) / unit.one;
  if (tenths >= 1000) return number_text(whole + rest * 2 / unit.one, unit.name);
  UnitText result;
  std::snprintf(result.text, sizeof result.text, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10,
                tenths % 10, unit.name);
  return result;
}

}  // namespace

std::optional<uint64_t> parse_bytes(std::string_view text) noexcept {
  const std::string_view digits = text.substr(0, text.find_first_not_of("0123456789"));
  uint64_t count = 0;
  if (!parse_number(digits, &count)) return std::nullopt;
  std::string_view suffix = text.substr(digits.size());
  uint64_t scale = suffix.empty() ? 1 : 0;  // spaces need a unit: "1 " is no size
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  for (const Unit& unit : kByteUnits) {
    if (unit.one > 1 && suffix == unit.name) scale = unit.one;
  }
  constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
  if (scale == 0 || count > kLargest / scale) return std::nullopt;
  return count * scale;
}

UnitText format_bytes(uint64_t bytes) noexcept {
  for (const Unit& unit : kByteUnits) {
    if (bytes != 0 && bytes % unit.one == 0) return number_text(bytes / unit.one, unit.name);
  }
  return number_text(0, "bytes");
}

UnitText format_rounded_bytes(uint64_t bytes) noexcept { return format_rounded(bytes, kByteUnits); }

UnitText format_rounded_ns(uint64_t ns) noexcept { return format_rounded(ns, kTimeUnits); }

UnitText format_rounded_count(double count) noexcept {
  constexpr struct {
    double one;
    const char* name;
    uint64_t tenths_max;  // from here on no digit follows the point
  } kScales[] = {
      {1e12, "T", 1000}, {1e9, "G", 1000}, {1e6, "M", 1000}, {1e3, "k", 1000}, {1, "", 100}};
  constexpr double kShownMin = 0.05, kScaledMax = 1e17;
  UnitText result;
  if (count > 0 && count < kShownMin) {
    std::snprintf(result.text, sizeof result.text, "<0.1");
    return result;
  }
  size_t i = 0;
  while (i + 1 < std::size(kScales) && count < 10 * kScales[i].one - kScales[i + 1].one / 2) ++i;
  const double scaled = std::clamp(count / kScales[i].one, 0.0, kScaledMax);
  const auto tenths = static_cast<uint64_t>(scaled * 10 + 0.5);
  const bool is_whole = scaled == static_cast<double>(static_cast<uint64_t>(scaled));
  if (is_whole || tenths >= kScales[i].tenths_max) {
    std::snprintf(result.text, sizeof result.text, "%" PRIu64 "%s",
                  static_cast<uint64_t>(scaled + 0.5), kScales[i].name);
  } else {
    std::snprintf(result.text, sizeof result.text, "%" PRIu64 ".%" PRIu64 "%s", tenths / 10,
                  tenths % 10, kScales[i].name);
  }
  return result;
}

UnitText format_wait(uint64_t seconds) noexcept {
  if (seconds < 2 * kSecondsPerMinute) return number_text(seconds, "s");
  if (seconds < 2 * kSecondsPerHour) return number_text(seconds / kSecondsPerMinute, "min");
  UnitText result;
  std::snprintf(result.text, sizeof result.text, "%" PRIu64 " h %" PRIu64 " min",
                seconds / kSecondsPerHour, seconds % kSecondsPerHour / kSecondsPerMinute);
  return result;
}

}  // namespace bedplate
