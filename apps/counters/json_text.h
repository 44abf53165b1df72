// A JSON writer for a span of fixed size; it tells when the text did not fit.
//
// Values follow one another; in an object, each follows its key. The writer adds the separators;
// the caller makes brackets match. A copy keeps the present state: assign it back to undo a value
// that did not fit. Threads: one. Nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "platform/text_writer.h"

namespace bedplate {

// kLines is for people: one value a line, nested values indented by two spaces.
enum class JsonLayout : uint8_t { kOneLine, kLines };

class JsonText {
 public:
  JsonText() noexcept : JsonText(std::span<char>()) {}
  explicit JsonText(std::span<char> to, JsonLayout layout = JsonLayout::kOneLine) noexcept
      : writer_(to), layout_(layout) {}

  JsonText& begin_object() noexcept { return begin("{"); }
  JsonText& end_object() noexcept { return end("}"); }
  JsonText& begin_array() noexcept { return begin("["); }
  JsonText& end_array() noexcept { return end("]"); }
  JsonText& key(std::string_view key) noexcept;
  // Replaces each byte that is not UTF-8 with U+FFFD, as key() does.
  JsonText& text(std::string_view text) noexcept;
  JsonText& number(uint64_t number) noexcept;
  JsonText& boolean(bool value) noexcept { return raw(value ? "true" : "false"); }
  JsonText& null() noexcept { return raw("null"); }
  // A value, or a part of a value, that is JSON already.
  JsonText& raw(std::string_view json) noexcept;
  // Continues in `to`, after the caller has removed the text written so far.
  void go_on(std::span<char> to) noexcept { writer_ = TextWriter(to); }
  // Like raw(), in the middle of a value: no separator is written.
  JsonText& more(std::string_view json) noexcept;

  bool is_full() const noexcept { return writer_.is_full(); }
  size_t bytes() const noexcept { return writer_.bytes(); }

 private:
  JsonText& begin(std::string_view bracket) noexcept;
  JsonText& end(std::string_view bracket) noexcept;
  void separate() noexcept;
  void begin_line() noexcept;
  void quote(std::string_view text) noexcept;

  TextWriter writer_;
  JsonLayout layout_;
  uint32_t depth_ = 0;        // open brackets
  bool needs_comma_ = false;  // a value precedes between the same brackets
  bool has_key_ = false;      // a key was written; its value comes next
};

}  // namespace bedplate
