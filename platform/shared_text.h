// A short text that one thread writes and any thread or process reads, as the name of a client that
// others wait for. It lies among counters, and costs as little.
//
// Tested by tests/apps/boot/counter_signs_test.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

#include "platform/counter.h"

namespace bedplate {

// It is for people: read while it is written, it may be a part of each. Zeroed memory is an empty
// one.
class SharedText {
 public:
  static constexpr size_t kBytesMax = 96;

  // What does not fit is cut off. Threads: the one writer.
  void set(std::string_view text) noexcept {
    char padded[kBytesMax] = {};
    if (!text.empty()) std::memcpy(padded, text.data(), std::min(text.size(), kBytesMax));
    for (size_t i = 0; i < std::size(words_); ++i) {
      uint64_t word;
      std::memcpy(&word, padded + i * sizeof word, sizeof word);
      words_[i].set(word);
    }
  }

  // A copy of what `words`, a text's, hold: it ends where they end, or with a NUL.
  struct Copy {
    char text[kBytesMax + 1] = {};
    std::string_view view() const noexcept { return text; }
  };
  template <typename Words>
  static Copy read(const Words& words) noexcept {
    Copy copy;
    for (size_t i = 0; i < std::min(words.size(), kBytesMax / sizeof(uint64_t)); ++i) {
      const uint64_t word = words[i].read();
      std::memcpy(copy.text + i * sizeof word, &word, sizeof word);
    }
    return copy;
  }

 private:
  Counter words_[kBytesMax / sizeof(uint64_t)];
};

}  // namespace bedplate
