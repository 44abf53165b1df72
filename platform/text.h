// Small text functions for messages. They allocate, so they are for boot and commands only.
#pragma once

#include <string>
#include <string_view>

namespace bedplate {

// Appends `word` to *list, after a comma if it is not the first: "one, two".
inline void add_word(std::string* list, std::string_view word) {
  if (!list->empty()) *list += ", ";
  *list += word;
}

// Makes foreign text safe for terminals and log lines: turns each byte that is not printable ASCII
// into `?`.
inline std::string printable(std::string_view text) {
  std::string shown(text);
  for (char& each : shown) {
    if (each < ' ' || each > '~') each = '?';
  }
  return shown;
}

}  // namespace bedplate
