// Words and numbers of a text, for streamed protocols and for files of the kernel. Nothing is
// copied: words point into the text. Only spaces separate words; tabs may also precede numbers.
//
// Threads: any.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>

#include "platform/version.h"

namespace bedplate {

// Removes the first word and the spaces before it from *text. Returns the word; empty: there is
// none.
inline std::string_view take_word(std::string_view* text) noexcept {
  const char* begin = text->data();
  const char* const end = begin + text->size();
  while (begin < end && *begin == ' ') ++begin;
  const char* word_end = begin;
  while (word_end < end && *word_end != ' ') ++word_end;
  *text = {word_end, static_cast<size_t>(end - word_end)};
  return {begin, static_cast<size_t>(word_end - begin)};
}

// Parses all of `word` as a number to `base` into *to. Returns false if it is no number or does not
// fit; *to may then have changed. Accepts a minus for signed numbers, no plus, and no 0x.
template <typename Number>
bool parse_number(std::string_view word, Number* to, int base = 10) noexcept {
  const auto [end, outcome] = std::from_chars(word.data(), word.data() + word.size(), *to, base);
  return outcome == std::errc() && end == word.data() + word.size();
}

// Removes the number at the front of *text, with the spaces and tabs before it, and returns it. Any
// text may follow the number. Returns nothing if there is no number that fits; *text is then
// unchanged.
template <typename Number>
std::optional<Number> try_take_number(std::string_view* text, int base = 10) noexcept {
  const char* begin = text->data();
  const char* const end = begin + text->size();
  while (begin < end && (*begin == ' ' || *begin == '\t')) ++begin;
  Number number{};
  const auto [rest, outcome] = std::from_chars(begin, end, number, base);
  if (outcome != std::errc()) return {};
  *text = {rest, static_cast<size_t>(end - rest)};
  return number;
}

// The same, but returns `otherwise` if there is no number that fits.
template <typename Number>
Number take_number(std::string_view* text, Number otherwise, int base = 10) noexcept {
  return try_take_number<Number>(text, base).value_or(otherwise);
}

}  // namespace bedplate
