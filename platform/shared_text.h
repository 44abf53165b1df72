// A short text that one thread writes and any thread or process reads, such as the name of a client
// that others wait for. It lies among counters and, like them, needs no locked instruction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

#include "platform/counter.h"

namespace bedplate {

// `text`, truncated to at most `bytes_max` bytes at a character boundary of UTF-8. Text that is not
// UTF-8 may lose up to three more bytes.
constexpr std::string_view cut_text(std::string_view text, size_t bytes_max) noexcept {
  if (text.size() <= bytes_max) return text;
  const auto goes_on = [&](size_t at) { return (static_cast<unsigned char>(text[at]) >> 6) == 2; };
  size_t bytes = bytes_max;
  while (bytes > 0 && bytes_max - bytes < 3 && goes_on(bytes)) --bytes;
  return text.substr(0, bytes);
}

// The text is for people: a read during a write may mix the old text and the new one. Zeroed memory
// is an empty text.
class SharedText {
 public:
  static constexpr size_t kBytesMax = 96;

  // Sets the text, truncated at a character boundary if it is too long. Threads: the one writer.
  void set(std::string_view text) noexcept {
    char padded[kBytesMax] = {};
    const std::string_view fits = cut_text(text, kBytesMax);
    if (!fits.empty()) std::memcpy(padded, fits.data(), fits.size());
    for (size_t i = 0; i < std::size(words_); ++i) {
      uint64_t word;
      std::memcpy(&word, padded + i * sizeof word, sizeof word);
      words_[i].set(word);
    }
  }

  // A copy of the text in `words`: it ends at a NUL or with the last word.
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
