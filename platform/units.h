// Units of memory and time, rounding, and texts of sizes, times and counts. All texts for people
// come from here, so one value looks the same in errors, the log, `stats`, `top` and on the status
// page. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "platform/assert.h"

namespace bedplate {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;
inline constexpr uint64_t kTiB = uint64_t{1} << 40;

inline constexpr uint64_t kNsPerUs = 1'000;
inline constexpr uint64_t kNsPerMs = 1'000'000;
inline constexpr uint64_t kNsPerSecond = 1'000'000'000;

constexpr bool is_power_of_two(uint64_t value) noexcept {
  return value != 0 && (value & (value - 1)) == 0;
}

// Requires: `alignment` is a power of two, and the result fits.
constexpr uint64_t align_up(uint64_t value, uint64_t alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

// Requires: `alignment` is a power of two.
constexpr uint64_t align_down(uint64_t value, uint64_t alignment) noexcept {
  return value & ~(alignment - 1);
}

// "256 MiB", "4KiB", "4096" -> bytes. Nothing for all other texts: signs, fractions, other units,
// and values over 63 bits.
std::optional<uint64_t> parse_bytes(std::string_view text) noexcept;

// A number with its unit.
struct UnitText {
  char text[32];
};

// The text of `bytes` in the largest unit that divides it: "256 MiB", "12 KiB", "100 bytes".
UnitText format_bytes(uint64_t bytes) noexcept;

// Short texts, for values that change: in the largest unit that gives 1 or more, with one digit
// behind the point if the number is below 100 and not whole. The status page formats in the same
// way (apps/http/page/page.js).
UnitText format_rounded_bytes(uint64_t bytes) noexcept;  // "174 MiB", "12.5 KiB", "512 bytes"
UnitText format_rounded_ns(uint64_t ns) noexcept;        // "12.5 us", "2 s", "0 ns"
// The text of a count or a rate; from 10000 on in thousands and so on: "9657", "12.3k", "123M".
// Below 10 it may have a digit behind the point: "0.5", "<0.1".
UnitText format_rounded_count(double count) noexcept;
// The text of a waiting time: "40 s", "12 min", "3 h 20 min".
UnitText format_wait(uint64_t seconds) noexcept;

}  // namespace bedplate
