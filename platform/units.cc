#include "platform/units.h"

#include <cinttypes>
#include <cstdio>
#include <limits>

#include "platform/text_words.h"

namespace bedplate {
namespace {

struct Unit {
  const char* name;
  uint64_t bytes;
};
constexpr Unit kUnits[] = {{"TiB", kTiB}, {"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}};

}  // namespace

std::optional<uint64_t> parse_bytes(std::string_view text) noexcept {
  const std::string_view digits = text.substr(0, text.find_first_not_of("0123456789"));
  uint64_t count = 0;
  if (!parse_number(digits, &count)) return std::nullopt;
  std::string_view suffix = text.substr(digits.size());
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
