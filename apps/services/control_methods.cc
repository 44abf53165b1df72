#include "apps/services/control_methods.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate {

const char* to_text(ControlType type) noexcept {
  constexpr const char* kTexts[] = {"text", "number", "boolean"};
  return kTexts[static_cast<size_t>(type)];
}

void ControlCall::require_type(const Value* value, ControlType type,
                               const char* function) noexcept {
  BP_REQUIRE(value == nullptr || value->type == type,
             "a method asks for its parameter %.*s as a %s, and it is a %s: ControlCall::%s",
             static_cast<int>(value->name.size()), value->name.data(), to_text(type),
             to_text(value->type), function);
}

const ControlCall::Value* ControlCall::find(std::string_view parameter) const noexcept {
  for (size_t i = 0; i < value_count_; ++i) {
    if (values_[i].name == parameter) return &values_[i];
  }
  return nullptr;
}

std::string_view ControlCall::text(std::string_view parameter,
                                   std::string_view otherwise) const noexcept {
  const Value* value = find(parameter);
  require_type(value, ControlType::kText, "text");
  return value == nullptr ? otherwise : value->text;
}

uint64_t ControlCall::number(std::string_view parameter, uint64_t otherwise) const noexcept {
  const Value* value = find(parameter);
  require_type(value, ControlType::kNumber, "number");
  return value == nullptr ? otherwise : value->number;
}

bool ControlCall::boolean(std::string_view parameter, bool otherwise) const noexcept {
  const Value* value = find(parameter);
  require_type(value, ControlType::kBoolean, "boolean");
  return value == nullptr ? otherwise : value->number != 0;
}

void ControlCall::refuse(const Error& error) noexcept {
  error_ = error;
  is_refused_ = true;
}

void ControlCall::go_on(EventLoop& loop, Function function, void* context) noexcept {
  BP_REQUIRE(loop_ == nullptr && function != nullptr,
             "a method goes on twice, or without a function: ControlCall::go_on");
  loop_ = &loop;
  next_ = function;
  next_context_ = context;
}

// Why it cannot be added; nullptr: it can.
const char* ControlMethods::defect_of(const ControlMethod& method) const noexcept {
  const auto has_only = [](std::string_view name, std::string_view more) {
    return std::all_of(name.begin(), name.end(), [more](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || more.find(c) != more.npos;
    });
  };
  const std::string& name = method.name;
  const bool has_empty_word =
      name.empty() || name.starts_with('.') || name.ends_with('.') || name.find("..") != name.npos;
  if (has_empty_word || !has_only(name, "_-.")) return "a name has words of a-z, 0-9, _ and -";
  if (find(name) != nullptr) return "another one has this name";
  if (method.function == nullptr) return "it has no function";
  if (method.parameters.size() > kControlParametersMax) return "it has more than 8 parameters";
  static_assert(kControlParametersMax == 8);
  for (const ControlParameter& each : method.parameters) {
    if (each.name.empty() || !has_only(each.name, "_")) {
      return "the name of a parameter has letters of a-z, 0-9 and _";
    }
    const auto count =
        std::count_if(method.parameters.begin(), method.parameters.end(),
                      [&each](const ControlParameter& other) { return other.name == each.name; });
    if (count > 1) return "two of its parameters have the same name";
  }
  return nullptr;
}

void ControlMethods::add(ControlMethod method, ControlCall::Function function, void* context) {
  if (!owner_.empty()) method.name = owner_ + "." + method.name;
  method.function = function;
  method.context = context;
  method.asker = current_heap_owner();
  if (const char* defect = defect_of(method); defect != nullptr) {
    if (refusal_) return;
    refusal_ = error_while("adding the method %s", method.name.c_str())
                   .set_answer("%s", defect)
                   .set_cure("this is a defect of the service: apps/services/control_methods.h "
                             "says what a method needs");
    return;
  }
  methods_.push_back(std::move(method));
}

Result<void> ControlMethods::refusal() const {
  if (refusal_) return *refusal_;
  return {};
}

const ControlMethod* ControlMethods::find(std::string_view name) const noexcept {
  const auto found = std::find_if(methods_.begin(), methods_.end(),
                                  [name](const ControlMethod& each) { return each.name == name; });
  return found == methods_.end() ? nullptr : &*found;
}

}  // namespace bedplate
