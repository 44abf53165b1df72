// Lists of words, as messages have them. It allocates: for boot and commands alone.
#pragma once

#include <string>
#include <string_view>

namespace bedplate {

// Appends `word` to *list, after a comma where it is not the first: "one, two".
inline void add_word(std::string* list, std::string_view word) {
  if (!list->empty()) *list += ", ";
  *list += word;
}

}  // namespace bedplate
