// The flags of a meta command, parsed: memcached's mg, ms, md, ma and me.
//
//     mg KEY FLAG...          a flag is a letter, with a token behind it for some letters
//
// One table lists all flags. As memcached does, each command takes all of them, and ignores those
// that mean nothing to it. E (a version chosen by the client) is refused: versions in the cache
// grow, and a flush relies on it. Nothing here knows items or replies.
//
// Threads: any. Nothing is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "apps/kvd/items_datapath.h"

namespace bedplate::kvd {

struct MetaRequest {
  static constexpr uint32_t kOpaqueBytesMax = 32;
  // Memory for a decoded key, or for the texts that keep() copies.
  static constexpr uint32_t kMemoryBytes = kKeyBytesMax + 1 + kOpaqueBytesMax;
  static constexpr uint32_t kFlagsMax = 32;

  // Parses a key and the flags behind it. Returns the first fault, as a line of a reply, or
  // nullptr. Lifetime: the request refers to these texts, and to `memory` if the key is binary.
  const char* parse(std::string_view text_of_key, std::string_view flags,
                    std::span<char, kMemoryBytes> memory) noexcept;
  // Copies `key_text` and `opaque` to `memory`, as the others are about to go. `key` is invalid
  // from then on.
  void keep(std::span<char, kMemoryBytes> memory) noexcept;

  bool has(char letter) const noexcept { return (letters & bit_of(letter)) != 0; }
  // The letters in the client's order.
  std::string_view order() const noexcept { return {order_of_letters, letter_count}; }

  std::string_view key;          // decoded, if the client sent it in base64 (b)
  std::string_view key_text;     // as the client sent it
  std::string_view opaque;       // O with its token
  int64_t expiry_s = 0;          // T
  int64_t missing_expiry_s = 0;  // N: of an item that is made because there is none
  int64_t recache_s = 0;         // R
  uint32_t client_flags = 0;     // F
  uint64_t version = 0;          // C
  uint64_t initial = 0;          // J
  uint64_t delta = 1;            // D
  char mode = '\0';              // M

  // The rest is for the functions above.
  static constexpr uint64_t bit_of(char letter) noexcept { return uint64_t{1} << (letter & 63); }
  uint64_t letters = 0;
  uint32_t letter_count = 0;
  char order_of_letters[kFlagsMax];
};

}  // namespace bedplate::kvd
