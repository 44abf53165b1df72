// JSON that is written into a span of a known length, and says when it did not fit.
//
// Values follow one another, in an object each behind its key; this writes what separates them. The
// caller makes brackets match. A copy keeps the state of that moment: assign it to take back a
// value that did not fit. Threads: one. Nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "platform/text_writer.h"

namespace bedplate {

// kLines: for people, a line for each value, those within others two spaces further in.
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
  // Bytes that are no UTF-8 are replaced.
  JsonText& text(std::string_view text) noexcept;
  JsonText& number(uint64_t number) noexcept;
  JsonText& boolean(bool value) noexcept { return raw(value ? "true" : "false"); }
  JsonText& null() noexcept { return raw("null"); }
  // A value, or a part of one, that is JSON already.
  JsonText& raw(std::string_view json) noexcept;
  // Goes on in `to`, once the caller has taken away what was written.
  void go_on(std::span<char> to) noexcept { writer_ = TextWriter(to); }
  // As raw(), in the middle of a value: nothing separates it from what was before.
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
  uint32_t depth_ = 0;        // brackets that are open
  bool needs_comma_ = false;  // something is before it between the same brackets
  bool has_key_ = false;      // the value of a key comes next
};

}  // namespace bedplate
