// Composes text in a span of fixed length, and reports if the text did not fit. The text has no
// terminating NUL.
//
// Threads: one at a time. Nothing is allocated.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "platform/version.h"

namespace bedplate {

class TextWriter {
 public:
  explicit TextWriter(std::span<char> to) noexcept : to_(to) {}

  TextWriter& text(std::string_view text) noexcept {
    if (text.size() > to_.size() - bytes_) {
      is_full_ = true;
    } else if (!text.empty()) {  // an empty text may have no address
      std::memcpy(to_.data() + bytes_, text.data(), text.size());
      bytes_ += text.size();
    }
    return *this;
  }
  // Requires: base is 10 to 36; with a smaller one the digits might not fit.
  TextWriter& number(uint64_t number, int base = 10) noexcept {
    char digits[20];
    const auto end = std::to_chars(digits, digits + sizeof digits, number, base);
    return text({digits, static_cast<size_t>(end.ptr - digits)});
  }
  // Writes `number` / 10^9 with nine digits behind the point: nanoseconds as seconds.
  TextWriter& billionths(uint64_t number) noexcept {
    this->number(number / 1'000'000'000);
    char fraction[10] = {'.'};
    uint64_t rest = number % 1'000'000'000;
    for (int i = 9; i > 0; --i, rest /= 10) fraction[i] = static_cast<char>('0' + rest % 10);
    return text({fraction, sizeof fraction});
  }
  // Writes `text` with a backslash before each character of `special`, and each newline as \n.
  TextWriter& escaped(std::string_view text, std::string_view special) noexcept {
    for (const char& each : text) {
      if (each == '\n') {
        this->text("\\n");
        continue;
      }
      if (special.find(each) != std::string_view::npos) this->text("\\");
      this->text({&each, 1});
    }
    return *this;
  }

  // True once something did not fit: the text is then useless.
  bool is_full() const noexcept { return is_full_; }
  size_t bytes() const noexcept { return bytes_; }

 private:
  std::span<char> to_;
  size_t bytes_ = 0;
  bool is_full_ = false;
};

}  // namespace bedplate
