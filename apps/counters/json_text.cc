#include "apps/counters/json_text.h"

namespace bedplate {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Bytes of the first character of `text`; 0: no valid character. RFC 3629, section 4.
size_t character_bytes(std::string_view text) noexcept {
  const auto at = [text](size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  const bool is_too_long = (first == 0xe0 && at(1) < 0xa0) || (first == 0xf0 && at(1) < 0x90);
  const bool is_surrogate = first == 0xed && at(1) >= 0xa0;
  const bool is_too_large = first == 0xf4 && at(1) >= 0x90;
  return is_too_long || is_surrogate || is_too_large ? 0 : bytes;
}

}  // namespace

void JsonText::separate() noexcept {
  if (!has_key_) {
    if (needs_comma_) writer_.text(",");
    if (depth_ > 0) begin_line();
  }
  has_key_ = false;
  needs_comma_ = true;
}

void JsonText::begin_line() noexcept {
  if (layout_ == JsonLayout::kOneLine) return;
  writer_.text("\n");
  for (uint32_t i = 0; i < depth_; ++i) writer_.text("  ");
}

JsonText& JsonText::begin(std::string_view bracket) noexcept {
  separate();
  writer_.text(bracket);
  ++depth_;
  needs_comma_ = false;
  return *this;
}

JsonText& JsonText::end(std::string_view bracket) noexcept {
  --depth_;
  if (needs_comma_) begin_line();
  writer_.text(bracket);
  needs_comma_ = true;
  has_key_ = false;
  return *this;
}

JsonText& JsonText::key(std::string_view key) noexcept {
  separate();
  quote(key);
  writer_.text(layout_ == JsonLayout::kOneLine ? ":" : ": ");
  has_key_ = true;
  return *this;
}

JsonText& JsonText::text(std::string_view text) noexcept {
  separate();
  quote(text);
  return *this;
}

JsonText& JsonText::number(uint64_t number) noexcept {
  separate();
  writer_.number(number);
  return *this;
}

JsonText& JsonText::raw(std::string_view json) noexcept {
  separate();
  return more(json);
}

JsonText& JsonText::more(std::string_view json) noexcept {
  writer_.text(json);
  return *this;
}

void JsonText::quote(std::string_view text) noexcept {
  constexpr char kDigits[] = "0123456789abcdef";
  writer_.text("\"");
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (bytes == 0) {
      writer_.text(kReplacement);
    } else if (first < ' ') {
      const char escaped[] = {'\\', 'u', '0', '0', kDigits[first >> 4], kDigits[first & 15]};
      writer_.text({escaped, sizeof escaped});
    } else {
      if (first == '"' || first == '\\') writer_.text("\\");
      writer_.text(text.substr(0, bytes));
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  writer_.text("\"");
}

}  // namespace bedplate
