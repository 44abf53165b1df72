// Units of memory and time, rounding, and byte sizes as people write them. Threads: any.
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

// "256 MiB", "4KiB", "4096" -> bytes. Nothing for anything else: signs, fractions, other units,
// and whatever does not fit into 63 bits.
std::optional<uint64_t> parse_bytes(std::string_view text) noexcept;

// The text of `bytes` in the largest unit that divides it: "256 MiB", "12 KiB", "100 bytes".
struct ByteText {
  char text[32];
};
ByteText format_bytes(uint64_t bytes) noexcept;

}  // namespace bedplate
