// Copies memory that another process may write at the same time; reads each byte once.
//
// The compiler may repeat a plain load or memcpy of shared memory: the code could then check one
// value and use another. This copy has one value, whatever the other process stores. The value may
// be half old and half new: a process that writes during the copy is not trusted anyway. Do not use
// it for a word that publishes something: such a word is an atomic, loaded with acquire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace bedplate {

// Reads at any alignment: a peer's offset may be misaligned.
// Cost: a load and a store for each 8 bytes; the compiler unrolls short loops.
template <typename T>
[[gnu::always_inline]] inline T read_once(const void* shared) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint32_t) == 0);
  struct [[gnu::packed, gnu::may_alias]] Word {
    uint64_t value;
  };
  struct [[gnu::packed, gnu::may_alias]] Half {
    uint32_t value;
  };
  constexpr size_t word_count = sizeof(T) / sizeof(Word);
  T copy;
  auto* to = reinterpret_cast<std::byte*>(&copy);
  const auto* words = static_cast<const volatile Word*>(shared);
#pragma GCC unroll 8
  for (size_t i = 0; i < word_count; ++i) {
    const uint64_t word = words[i].value;  // volatile: just one load
    std::memcpy(to + i * sizeof word, &word, sizeof word);
  }
  if constexpr (sizeof(T) % sizeof(Word) != 0) {
    const uint32_t half = reinterpret_cast<const volatile Half*>(words + word_count)->value;
    std::memcpy(to + word_count * sizeof(Word), &half, sizeof half);
  }
  return copy;
}

}  // namespace bedplate
