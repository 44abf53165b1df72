// Foreign text for use within a message of ours, without control characters: these could end the
// text, break its line or control a terminal. Long text is truncated. Nothing is allocated.
// Threads: any.
#pragma once

#include <cstddef>
#include <string_view>

namespace bedplate {

class ShownText {
 public:
  static constexpr size_t kBytesMax = 64;

  // The bytes of control characters (of ASCII, and U+0080 to U+009F in UTF-8) become question
  // marks; other bytes from 0x80 on stay. Text of more than kBytesMax bytes is truncated at a
  // character boundary of UTF-8 and ends with "...".
  explicit ShownText(std::string_view from) noexcept {
    size_t bytes = from.size();
    if (bytes > kBytesMax) {
      bytes = kBytesMax;
      while (bytes > 0 && (static_cast<unsigned char>(from[bytes]) & 0xc0) == 0x80) --bytes;
    }
    for (size_t i = 0; i < bytes; ++i) {
      const auto each = static_cast<unsigned char>(from[i]);
      text_[i] = each < ' ' || each == 0x7f ? '?' : from[i];
      if (i > 0 && from[i - 1] == '\xc2' && each >= 0x80 && each < 0xa0) {
        text_[i - 1] = text_[i] = '?';
      }
    }
    if (bytes < from.size()) bytes += std::string_view("...").copy(text_ + bytes, 3);
    text_[bytes] = '\0';
  }

  const char* c_str() const noexcept { return text_; }

 private:
  char text_[kBytesMax + 4];
};

}  // namespace bedplate
