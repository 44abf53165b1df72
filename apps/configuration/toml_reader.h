// TOML text as a plain tree in which every node knows its line and column.
//
// Only this unit includes the TOML library. So its templates are compiled once, and the code that
// reads a configuration sees only tables, arrays and values. It knows no keys:
// configuration_reader.h gives nodes their meaning. It also makes the errors that carry a position.
// Source: toml.io, version 1.0.0. Threads: any, before the seal (it allocates).
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/result.h"

namespace bedplate {

// Counted from 1; columns count characters, not bytes.
struct TomlPosition {
  uint32_t line = 1;
  uint32_t column = 1;
  auto operator<=>(const TomlPosition&) const = default;
};

struct TomlNode {
  enum class Kind { kTable, kArray, kText, kInteger, kBoolean, kFloat, kTime };

  Kind kind = Kind::kTable;
  TomlPosition position;           // where the value begins; of a table: its header
  std::string key;                 // empty in an array
  TomlPosition key_position;       // where the key begins
  std::string text;                // kText
  int64_t number = 0;              // kInteger; kBoolean: 0 or 1
  std::vector<TomlNode> children;  // kTable: by key; kArray: in the file's order
};

// The child of `node` with this key; nullptr: no such child.
const TomlNode* find_child(const TomlNode& node, std::string_view key) noexcept;

// "a table", "an integer": for messages. Static text.
const char* to_text(TomlNode::Kind kind) noexcept;

// Whether `letter` is one of the ASCII control characters.
constexpr bool is_control(char letter) noexcept {
  return (letter >= 0 && letter < 0x20) || letter == 0x7F;
}

// The error "PATH:LINE:COLUMN: answer; cure", kind kConfiguration. A long path is cut at its
// beginning, and control characters become '?', so that a message is one line with its position.
Error configuration_error(const char* path, TomlPosition position, std::string_view answer,
                          std::string_view cure) noexcept;

// Parses `text` as TOML 1.0. Also refuses NUL bytes, invalid UTF-8, and text that would exhaust the
// stack or the heap of boot: lines over 2048 bytes, values nested over 8 deep, more than 8192 of
// the characters = , [ { . in the file. Returns the root table. `path` appears in messages only.
// Errors: configuration_error's, for the first wrong position.
Result<TomlNode> read_toml(std::string_view text, const char* path);

}  // namespace bedplate
