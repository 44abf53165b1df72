// Memory that identifies its owner: every word combines a number with the word's position.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bedplate::test {

// Cheap, since an emulated machine is slow.
inline uint64_t filled_word(uint32_t number, uint64_t at) noexcept {
  return (uint64_t{number} << 32 | at) * 0x9e37'79b9'7f4a'7c15;
}

inline void fill(std::byte* data, uint64_t bytes, uint32_t number) noexcept {
  for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = filled_word(number, at);
    std::memcpy(data + at, &word, std::min(sizeof word, bytes - at));
  }
}

inline bool is_filled(const std::byte* data, uint64_t bytes, uint32_t number) noexcept {
  for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = filled_word(number, at);
    if (std::memcmp(data + at, &word, std::min(sizeof word, bytes - at)) != 0) return false;
  }
  return true;
}

}  // namespace bedplate::test
