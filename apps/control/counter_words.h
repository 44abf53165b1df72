// Encodes 8-byte words of a counters file as items of a JSON array, for a reader that cannot open
// the file: most words are zeros or texts, and a serial line is slow.
//
//     "relay service"   a text of at least 8 bytes; the rest of its last word is zeros
//     -12               twelve words of zeros
//     1234              any other word
//
// Threads: any. Nothing is allocated.
#pragma once

#include <cstdint>
#include <span>

#include "apps/counters/json_text.h"

namespace bedplate {

// The most characters for one word.
inline constexpr size_t kCounterWordRoom = 24;

void write_counter_words(std::span<const uint64_t> words, JsonText* json) noexcept;

}  // namespace bedplate
