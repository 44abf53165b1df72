// Names that users choose, short enough for the names of owners and counters.
#pragma once

#include <cstddef>
#include <string>

namespace bedplate {

inline constexpr size_t kShortNameMax = 48;

// `name`; one of more than kShortNameMax bytes is cut there, and ends in "~" and `index`, so names
// with different indices stay unique.
inline std::string short_name(const std::string& name, size_t index) {
  if (name.size() <= kShortNameMax) return name;
  return name.substr(0, kShortNameMax) + "~" + std::to_string(index);
}

}  // namespace bedplate
