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
class Json {
 public:
  struct Member;
  enum class Kind : uint8_t { kNull, kBoolean, kSigned, kUnsigned, kReal, kText, kArray, kObject };

  Json();  // null
  Json(std::initializer_list<Member> members);
  Json(std::string_view text);
  Json(const std::string& text) : Json(std::string_view(text)) {}
  Json(const char* text) : Json(std::string_view(text)) {}
  Json(double value);
  template <std::integral Integer>
  Json(Integer value)
      : Json(std::same_as<Integer, bool>     ? Kind::kBoolean
             : std::signed_integral<Integer> ? Kind::kSigned
                                             : Kind::kUnsigned,
             static_cast<uint64_t>(value)) {}
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();
  static Json array() { return Json(Kind::kArray, 0); }
  static Json object() { return Json(Kind::kObject, 0); }

  // An object's member, added if missing; null becomes an object. Keys keep the order of first use.
  Json& operator[](std::string_view key);
  // Adds an item to an array and returns it; the reference is valid until the next item is added.
  Json& push_back(Json item);

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
  Json(Kind kind, uint64_t bits);

  Kind kind_ = Kind::kNull;
  uint64_t bits_ = 0;  // of a boolean or number
  std::string text_;
  std::vector<Member> members_;
};

struct Json::Member {
  std::string key;
  Json value;
};

// A node's number; null if the system chooses it.
inline Json node_json(int node) { return node == kAnyNode ? Json() : Json(node); }

void print_json(const Json& json, int indent = 2);

}  // namespace bedplate
