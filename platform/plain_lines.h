// The reader of our own small text formats: one word in each line, such as "NAME:KEY" or a file
// name.
//
// A line must have no blank (U+0020 or U+00A0), tab, other ASCII control character or byte order
// mark: editors do not show these, and they would become part of the word. A line with one is
// refused, with its line number and column. Empty lines are skipped. Nothing is copied or
// allocated: lines point into the text.
// Threads: any, each object one at a time.
#pragma once

#include <cstdint>
#include <string_view>

namespace bedplate {

class PlainLines {
 public:
  // Lifetime: the memory of `text` outlives this object and its lines.
  explicit PlainLines(std::string_view text) noexcept : rest_(text) {}

  // Goes on to the next line that is not empty. Returns false if there is none, or if the line is
  // bad: then fault() has the reason, and no further line follows.
  bool next() noexcept {
    while (!rest_.empty() && fault_ == nullptr) {
      ++number_;
      const size_t end = rest_.find('\n');
      line_ = rest_.substr(0, end);
      rest_ = end == rest_.npos ? std::string_view() : rest_.substr(end + 1);
      if (line_.empty()) continue;
      look_for_faults();
      return fault_ == nullptr;
    }
    return false;
  }
  std::string_view line() const noexcept { return line_; }
  uint32_t number() const noexcept { return number_; }  // of line(); the first is 1
  // The first forbidden character of line(), in words (static text); nullptr: there is none.
  const char* fault() const noexcept { return fault_; }
  uint32_t column() const noexcept { return column_; }  // of the fault, in bytes; the first is 1

 private:
  void look_for_faults() noexcept {
    constexpr std::string_view kMark = "\xef\xbb\xbf", kHardBlank = "\xc2\xa0";
    for (size_t i = 0; i < line_.size() && fault_ == nullptr; ++i) {
      const auto byte = static_cast<unsigned char>(line_[i]);
      const std::string_view here = line_.substr(i);
      fault_ = byte == ' ' || here.starts_with(kHardBlank) ? "a blank"
               : byte == '\t'                              ? "a tab"
               : byte == '\r'               ? "a carriage return, as in Windows files"
               : byte < ' ' || byte == 0x7f ? "a control character"
               : here.starts_with(kMark)    ? "a byte order mark"
                                            : nullptr;
      column_ = static_cast<uint32_t>(i + 1);
    }
  }

  std::string_view rest_;
  std::string_view line_;
  uint32_t number_ = 0;
  uint32_t column_ = 0;
  const char* fault_ = nullptr;
};

}  // namespace bedplate
