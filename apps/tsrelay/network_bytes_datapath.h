// Reads and writes numbers in network order: the highest byte first, at any address.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bedplate::relay {

constexpr uint8_t load_u8(const std::byte* from) noexcept { return static_cast<uint8_t>(*from); }
constexpr uint16_t load_u16(const std::byte* from) noexcept {
  return static_cast<uint16_t>(load_u8(from) << 8 | load_u8(from + 1));
}
constexpr uint32_t load_u24(const std::byte* from) noexcept {
  return static_cast<uint32_t>(load_u8(from)) << 16 | load_u16(from + 1);
}
constexpr uint32_t load_u32(const std::byte* from) noexcept {
  return static_cast<uint32_t>(load_u16(from)) << 16 | load_u16(from + 2);
}

constexpr void store_u8(std::byte* to, uint64_t value) noexcept {
  *to = static_cast<std::byte>(value);
}
constexpr void store_u16(std::byte* to, uint64_t value) noexcept {
  store_u8(to, value >> 8);
  store_u8(to + 1, value);
}
constexpr void store_u24(std::byte* to, uint64_t value) noexcept {
  store_u8(to, value >> 16);
  store_u16(to + 1, value);
}
constexpr void store_u32(std::byte* to, uint64_t value) noexcept {
  store_u16(to, value >> 16);
  store_u16(to + 2, value);
}

}  // namespace bedplate::relay
