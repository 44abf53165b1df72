// JSON on standard output, for all commands.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "platform/numa.h"

namespace bedplate {

// A value to print. Only json_output.cc uses nlohmann's library: it would add three seconds to the
// compilation of each command.
class JsonValue {
 public:
  struct Member;
  enum class Kind : uint8_t { kNull, kBoolean, kSigned, kUnsigned, kReal, kText, kArray, kObject };

  JsonValue();  // null
  JsonValue(std::initializer_list<Member> members);
  JsonValue(std::string_view text);
  JsonValue(const std::string& text) : JsonValue(std::string_view(text)) {}
  JsonValue(const char* text) : JsonValue(std::string_view(text)) {}
  JsonValue(double value);
  template <std::integral Integer>
  JsonValue(Integer value)
      : JsonValue(std::same_as<Integer, bool>     ? Kind::kBoolean
                  : std::signed_integral<Integer> ? Kind::kSigned
                                                  : Kind::kUnsigned,
                  static_cast<uint64_t>(value)) {}
  JsonValue(const JsonValue& other);
  JsonValue(JsonValue&& other) noexcept;
  JsonValue& operator=(const JsonValue& other);
  JsonValue& operator=(JsonValue&& other) noexcept;
  ~JsonValue();
  static JsonValue array() { return JsonValue(Kind::kArray, 0); }
  static JsonValue object() { return JsonValue(Kind::kObject, 0); }

  // An object's member, added if missing; null becomes an object. Keys keep the order of first use.
  // The reference is valid until the next member is added. Requires: an object, or null.
  JsonValue& operator[](std::string_view key);
  // Adds an item to an array and returns it; the reference is valid until the next item is added.
  // Requires: an array.
  JsonValue& push_back(JsonValue item);

  Kind kind() const noexcept { return kind_; }
  // The members of an object, or the items of an array, without keys.
  const std::vector<Member>& members() const noexcept { return members_; }
  // The text of a text value; the JSON of any other value, in one line.
  std::string text() const;
  // `indent`: spaces for each level; -1: all in one line. Replaces bytes that are not UTF-8: a name
  // cut off within a character must not stop a report.
  std::string dump(int indent) const;

 private:
  friend struct JsonConversion;
  JsonValue(Kind kind, uint64_t bits);

  Kind kind_ = Kind::kNull;
  uint64_t bits_ = 0;  // of a boolean or number
  std::string text_;
  std::vector<Member> members_;
};

struct JsonValue::Member {
  std::string key;
  JsonValue value;
};

// A node's number; null if the system chooses it.
inline JsonValue node_json(int node) { return node == kAnyNode ? JsonValue() : JsonValue(node); }

// Prints the value and a newline on standard output.
void print_json(const JsonValue& json, int indent = 2);

}  // namespace bedplate
