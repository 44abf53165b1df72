// Texts as messages have them. It allocates: for boot and commands alone.
#pragma once

#include <string>
#include <string_view>

namespace bedplate {

// Appends `word` to *list, after a comma where it is not the first: "one, two".
inline void add_word(std::string* list, std::string_view word) {
  if (!list->empty()) *list += ", ";
  *list += word;
}

// What others say must not steer a terminal, nor break a line: all but printable ASCII is a ?.
inline std::string printable(std::string_view text) {
  std::string shown(text);
  for (char& each : shown) {
    if (each < ' ' || each > '~') each = '?';
  }
  return shown;
}

}  // namespace bedplate
