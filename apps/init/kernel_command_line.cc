#include "apps/init/kernel_command_line.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr std::string_view kBlanks = " \t\n";

// Takes the first parameter off `rest`; empty at the end. Quotes stay: name="a value", or
// "name=a value".
std::string_view take_parameter(std::string_view* rest) {
  rest->remove_prefix(std::min(rest->find_first_not_of(kBlanks), rest->size()));
  bool is_quoted = false;
  size_t bytes = 0;
  for (; bytes < rest->size(); ++bytes) {
    const char letter = (*rest)[bytes];
    if (letter == '"') is_quoted = !is_quoted;
    if (!is_quoted && kBlanks.find(letter) != std::string_view::npos) break;
  }
  const std::string_view word = rest->substr(0, bytes);
  rest->remove_prefix(bytes);
  return word;
}

std::string without_quotes(std::string_view text) {
  std::string plain(text);
  std::erase(plain, '"');
  return plain;
}

}  // namespace

std::string module_name(std::string_view text) {
  std::string name(text);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::optional<std::string> command_line_value(std::string_view line, std::string_view name) {
  BP_ASSERT(!name.empty() && name.find('=') == std::string_view::npos);
  std::optional<std::string> value;
  for (std::string_view word; !(word = take_parameter(&line)).empty();) {
    if (word.front() == '"') word.remove_prefix(1);
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || word.substr(0, equals) != name) continue;
    value = without_quotes(word.substr(equals + 1));
  }
  return value;
}

std::string module_parameters(std::string_view line, std::string_view name) {
  std::string parameters;
  for (std::string_view word; !(word = take_parameter(&line)).empty();) {
    const std::string quote = word.front() == '"' ? "\"" : "";
    word.remove_prefix(quote.size());
    const size_t dot = word.substr(0, word.find('=')).find('.');
    if (dot == std::string_view::npos || module_name(word.substr(0, dot)) != module_name(name)) {
      continue;
    }
    parameters += (parameters.empty() ? "" : " ") + quote + std::string(word.substr(dot + 1));
  }
  return parameters;
}

}  // namespace bedplate
