#include "platform/units.h"

#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <limits>

namespace bedplate {
namespace {

struct Unit {
  const char* name;
  uint64_t bytes;
};
constexpr Unit kUnits[] = {{"TiB", kTiB}, {"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}};

}  // namespace

std::optional<uint64_t> parse_bytes(std::string_view text) noexcept {
  uint64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, count);
  if (problem != std::errc{}) return std::nullopt;
  std::string_view suffix(rest, static_cast<size_t>(end - rest));
  uint64_t scale = suffix.empty() ? 1 : 0;  // spaces are for a unit: "1 " is not a size
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (suffix == unit.name) scale = unit.bytes;
  }
  constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
  if (scale == 0 || count > kLargest / scale) return std::nullopt;
  return count * scale;
}

ByteText format_bytes(uint64_t bytes) noexcept {
  ByteText result{};
  for (const Unit& unit : kUnits) {
    if (bytes != 0 && bytes % unit.bytes == 0) {
      std::snprintf(result.text, sizeof result.text, "%" PRIu64 " %s", bytes / unit.bytes,
                    unit.name);
      return result;
    }
  }
  std::snprintf(result.text, sizeof result.text, "%" PRIu64 " bytes", bytes);
  return result;
}

}  // namespace bedplate
