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
  static nlohmann::ordered_json convert(const Json& from) {
    switch (from.kind_) {
      case Json::Kind::kNull: return nullptr;
      case Json::Kind::kBoolean: return from.bits_ != 0;
      case Json::Kind::kSigned: return static_cast<int64_t>(from.bits_);
      case Json::Kind::kUnsigned: return from.bits_;
      case Json::Kind::kReal: return std::bit_cast<double>(from.bits_);
      case Json::Kind::kText: return from.text_;
      case Json::Kind::kArray: {
        auto array = nlohmann::ordered_json::array();
        for (const Json::Member& item : from.members_) array.push_back(convert(item.value));
        return array;
      }
      case Json::Kind::kObject: {
        auto object = nlohmann::ordered_json::object();
        for (const Json::Member& member : from.members_) {
          object[member.key] = convert(member.value);
        }
        return object;
      }
    }
    return nullptr;
  }
};

Json::Json() = default;
Json::Json(Kind kind, uint64_t bits) : kind_(kind), bits_(bits) {}
Json::Json(double value) : Json(Kind::kReal, std::bit_cast<uint64_t>(value)) {}
Json::Json(std::string_view text) : kind_(Kind::kText), text_(text) {}
Json::Json(std::initializer_list<Member> members) : kind_(Kind::kObject), members_(members) {}
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json& Json::operator[](std::string_view key) {
  if (kind_ == Kind::kNull) kind_ = Kind::kObject;
  BP_ASSERT(kind_ == Kind::kObject);
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [key](const Member& member) { return member.key == key; });
  if (found != members_.end()) return found->value;
  return members_.emplace_back(Member{std::string(key), Json()}).value;
}

Json& Json::push_back(Json item) {
  BP_ASSERT(kind_ == Kind::kArray);
  return members_.emplace_back(Member{"", std::move(item)}).value;
}

std::string Json::text() const { return kind_ == Kind::kText ? text_ : dump(-1); }

std::string Json::dump(int indent) const {
  BP_ASSERT(indent >= -1);
  return JsonConversion::convert(*this).dump(indent, ' ', false,
                                             nlohmann::ordered_json::error_handler_t::replace);
}

void print_json(const Json& json, int indent) { std::printf("%s\n", json.dump(indent).c_str()); }

}  // namespace bedplate
