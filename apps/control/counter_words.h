// Words of 8 bytes of a counters file as items of a JSON array, for a reader that cannot open the
// file: most of them are zeros, or texts, and a serial line is slow.
//
//     "relay se", "rvice"   a text's bytes, with zeros up to the end of its last word
//     -12                   twelve words of zeros
//     1234                  a word
//
// Threads: any. Nothing is allocated.
#pragma once

#include <cstdint>
#include <span>

#include "apps/counters/json_text.h"

namespace bedplate {

// The most characters that a word takes.
inline constexpr size_t kCounterWordRoom = 24;

void write_counter_words(std::span<const uint64_t> words, JsonText* json) noexcept;

}  // namespace bedplate
