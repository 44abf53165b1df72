#include "apps/program/json_output.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include "platform/assert.h"

namespace bedplate {

// Converts to nlohmann's type.
struct JsonConversion {
  static nlohmann::ordered_json convert(const JsonValue& from) {
    switch (from.kind_) {
      case JsonValue::Kind::kNull: return nullptr;
      case JsonValue::Kind::kBoolean: return from.bits_ != 0;
      case JsonValue::Kind::kSigned: return static_cast<int64_t>(from.bits_);
      case JsonValue::Kind::kUnsigned: return from.bits_;
      case JsonValue::Kind::kReal: return std::bit_cast<double>(from.bits_);
      case JsonValue::Kind::kText: return from.text_;
      case JsonValue::Kind::kArray: {
        auto array = nlohmann::ordered_json::array();
        for (const JsonValue::Member& item : from.members_) array.push_back(convert(item.value));
        return array;
      }
      case JsonValue::Kind::kObject: {
        auto object = nlohmann::ordered_json::object();
        for (const JsonValue::Member& member : from.members_) {
          object[member.key] = convert(member.value);
        }
        return object;
      }
    }
    return nullptr;
  }
};

JsonValue::JsonValue() = default;
JsonValue::JsonValue(Kind kind, uint64_t bits) : kind_(kind), bits_(bits) {}
JsonValue::JsonValue(double value) : JsonValue(Kind::kReal, std::bit_cast<uint64_t>(value)) {}
JsonValue::JsonValue(std::string_view text) : kind_(Kind::kText), text_(text) {}
JsonValue::JsonValue(std::initializer_list<Member> members)
    : kind_(Kind::kObject), members_(members) {}
JsonValue::JsonValue(const JsonValue& other) = default;
JsonValue::JsonValue(JsonValue&& other) noexcept = default;
JsonValue& JsonValue::operator=(const JsonValue& other) = default;
JsonValue& JsonValue::operator=(JsonValue&& other) noexcept = default;
JsonValue::~JsonValue() = default;

JsonValue& JsonValue::operator[](std::string_view key) {
  if (kind_ == Kind::kNull) kind_ = Kind::kObject;
  BP_ASSERT(kind_ == Kind::kObject);
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [key](const Member& member) { return member.key == key; });
  if (found != members_.end()) return found->value;
  return members_.emplace_back(Member{std::string(key), JsonValue()}).value;
}

JsonValue& JsonValue::push_back(JsonValue item) {
  BP_ASSERT(kind_ == Kind::kArray);
  return members_.emplace_back(Member{"", std::move(item)}).value;
}

std::string JsonValue::text() const { return kind_ == Kind::kText ? text_ : dump(-1); }

std::string JsonValue::dump(int indent) const {
  BP_ASSERT(indent >= -1);
  return JsonConversion::convert(*this).dump(indent, ' ', false,
                                             nlohmann::ordered_json::error_handler_t::replace);
}

void print_json(const JsonValue& json, int indent) {
  std::printf("%s\n", json.dump(indent).c_str());
}

}  // namespace bedplate
