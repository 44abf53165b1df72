#include "apps/configuration/configuration_words.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace bedplate {
namespace {

// How many letters must be inserted, removed or replaced to make `left` into `right`.
size_t edit_distance(std::string_view left, std::string_view right) {
  std::vector<size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= left.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= right.size(); ++j) {
      const size_t replaced = diagonal + (left[i - 1] == right[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string quoted(std::string_view text) {
  constexpr size_t kShownBytes = 64;
  if (text.size() <= kShownBytes) return "\"" + std::string(text) + "\"";
  size_t bytes = kShownBytes;
  while ((static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return "\"" + std::string(text.substr(0, bytes)) + "...\"";
}

bool resembles(std::string_view unknown, std::string_view known) {
  constexpr size_t kTypingErrors = 2;
  return unknown.size() <= known.size() + kTypingErrors &&
         edit_distance(unknown, known) <= std::min(kTypingErrors, known.size() - 1);
}

}  // namespace bedplate
