#include "apps/boot/toml_reader.h"

#include <algorithm>
#include <cstring>

// Deeper nesting than any key of ours has. Together with kLineMaxBytes it bounds the library's
// recursion: dotted keys nest without counting as values (upstream pull request 242), but they
// cannot leave their line.
#define TOML_MAX_NESTED_VALUES 8
#define TOML_EXCEPTIONS 0
// toml++ 3.3 asserts what a file can break ("[[=", upstream pull request 301) and refuses it
// properly where the assertion is off; with NDEBUG and clang it would be assumed instead.
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace bedplate {
namespace {

constexpr size_t kLineMaxBytes = 2048;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Bytes of the UTF-8 character that `text` begins with; 0 when it is not one (RFC 3629, section 4:
// no overlong forms, no surrogates, nothing past U+10FFFF).
size_t utf8_character_bytes(std::string_view text) noexcept {
  const auto byte = [text](size_t index) -> unsigned {
    return index < text.size() ? static_cast<unsigned char>(text[index]) : 0;
  };
  const auto is_tail = [byte](size_t index) { return (byte(index) & 0xC0) == 0x80; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return is_tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;
    if (lead == 0xED && byte(1) > 0x9F) return 0;
    return is_tail(1) && is_tail(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (lead == 0xF0 && byte(1) < 0x90) return 0;
    if (lead == 0xF4 && byte(1) > 0x8F) return 0;
    return is_tail(1) && is_tail(2) && is_tail(3) ? 4 : 0;
  }
  return 0;
}

// What the TOML library would misjudge or report without a useful position.
Result<void> check_text(std::string_view text, const char* path) noexcept {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  TomlPosition position;
  size_t line_bytes = 0;
  while (!text.empty()) {
    const size_t bytes = utf8_character_bytes(text);
    if (bytes == 0) {
      return configuration_error(path, position, "a byte that is not UTF-8",
                                 "save the file as UTF-8 text");
    }
    if (text.front() == '\0') {
      return configuration_error(path, position, "a NUL byte", "the file must be text");
    }
    line_bytes += bytes;
    if (text.front() == '\n') {
      position = {position.line + 1, 1};
      line_bytes = 0;
    } else if (line_bytes > kLineMaxBytes) {
      return configuration_error(path, position, "the line has more than 2048 bytes",
                                 "break the line; an array may go over several");
    } else {
      ++position.column;
    }
    text.remove_prefix(bytes);
  }
  return {};
}

TomlPosition to_position(const toml::source_position& source) noexcept {
  return {std::max(source.line, 1U), std::max(source.column, 1U)};
}

// Recursion: bounded as TOML_MAX_NESTED_VALUES says above.
TomlNode to_node(const toml::node& source) {
  TomlNode node;
  node.position = to_position(source.source().begin);
  if (const toml::table* table = source.as_table()) {
    for (const auto& [key, value] : *table) {
      node.children.push_back(to_node(value));
      node.children.back().key = key.str();
      node.children.back().key_position = to_position(key.source().begin);
    }
  } else if (const toml::array* array = source.as_array()) {
    node.kind = TomlNode::Kind::kArray;
    for (const toml::node& element : *array) node.children.push_back(to_node(element));
  } else if (const auto* text = source.as_string()) {
    node.kind = TomlNode::Kind::kText;
    node.text = text->get();
  } else if (const auto* integer = source.as_integer()) {
    node.kind = TomlNode::Kind::kInteger;
    node.number = integer->get();
  } else if (const auto* boolean = source.as_boolean()) {
    node.kind = TomlNode::Kind::kBoolean;
    node.number = boolean->get() ? 1 : 0;
  } else {
    node.kind = source.is_floating_point() ? TomlNode::Kind::kFloat : TomlNode::Kind::kTime;
  }
  return node;
}

// Copies what fits and keeps the message one line, whatever a file put into it.
template <size_t capacity>
void put_line(char (&part)[capacity], std::string_view text) noexcept {
  const size_t bytes = std::min(text.size(), capacity - 1);
  std::transform(text.begin(), text.begin() + bytes, part,
                 [](char letter) { return is_control(letter) ? '?' : letter; });
  part[bytes] = '\0';
}

}  // namespace

const char* kind_text(TomlNode::Kind kind) noexcept {
  switch (kind) {
    case TomlNode::Kind::kTable: return "a table";
    case TomlNode::Kind::kArray: return "an array";
    case TomlNode::Kind::kText: return "a string";
    case TomlNode::Kind::kInteger: return "an integer";
    case TomlNode::Kind::kBoolean: return "a boolean";
    case TomlNode::Kind::kFloat: return "a floating-point number";
    case TomlNode::Kind::kTime: return "a date or time";
  }
  return "";
}

Error configuration_error(const char* path, TomlPosition position, std::string_view answer,
                          std::string_view cure) noexcept {
  constexpr size_t kPathMaxBytes = 160;  // leaves room in `doing` for two numbers of ten digits
  static_assert(sizeof Error{}.doing >= kPathMaxBytes + sizeof "...:4294967295:4294967295");
  const size_t path_bytes = std::strlen(path);
  const bool is_long = path_bytes > kPathMaxBytes;
  Error error;
  error.kind = ErrorKind::kConfiguration;
  error.set_doing("%s%s:%u:%u", is_long ? "..." : "",
                  is_long ? path + (path_bytes - kPathMaxBytes) : path, position.line,
                  position.column);
  put_line(error.answer, answer);
  put_line(error.cure, cure);
  return error;
}

Result<TomlNode> read_toml(std::string_view text, const char* path) {
  BP_TRY(check_text(text, path));
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& problem = parsed.error();
    return configuration_error(path, to_position(problem.source().begin),
                               "not TOML: " + std::string(problem.description()),
                               "expected TOML 1.0, as docs/configuration.md shows it");
  }
  return to_node(parsed.table());
}

}  // namespace bedplate
