// The reader of our own small text formats: a word in each line, as "NAME:KEY" or a file's name.
//
// Such a line has no blank, no tab, no other control character and no byte order mark: editors do
// not show these, and they would become a part of the word. A line with one is refused, with its
// place. Empty lines are passed over. Nothing is copied or allocated: lines lie where the text
// does. Threads: any.
#pragma once

#include <cstdint>
#include <string_view>

namespace bedplate {

class PlainLines {
 public:
  // Lifetime: that of what `text` shows.
  explicit PlainLines(std::string_view text) noexcept : rest_(text) {}

  // Goes on to the next line that has something in it. Returns false if there is none, or if it is
  // bad: then fault() says why.
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
  uint32_t number() const noexcept { return number_; }  // of that line; the first is 1
  // The first thing in that line that is not allowed: static; nullptr: there is none.
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
               : byte == '\r'               ? "a carriage return, as in files of Windows"
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
