#include "apps/services/control_methods.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate {

const char* to_text(ControlType type) noexcept {
  constexpr const char* kTexts[] = {"text", "number", "boolean"};
  return kTexts[static_cast<size_t>(type)];
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
  BP_ASSERT(value == nullptr || value->type == ControlType::kText);
  return value == nullptr ? otherwise : value->text;
}

uint64_t ControlCall::number(std::string_view parameter, uint64_t otherwise) const noexcept {
  const Value* value = find(parameter);
  BP_ASSERT(value == nullptr || value->type == ControlType::kNumber);
  return value == nullptr ? otherwise : value->number;
}

bool ControlCall::boolean(std::string_view parameter, bool otherwise) const noexcept {
  const Value* value = find(parameter);
  BP_ASSERT(value == nullptr || value->type == ControlType::kBoolean);
  return value == nullptr ? otherwise : value->number != 0;
}

void ControlCall::refuse(const Error& error) noexcept {
  error_ = error;
  is_refused_ = true;
}

void ControlCall::go_on(EventLoop& loop, Function function, void* context) noexcept {
  BP_ASSERT(loop_ == nullptr && function != nullptr);
  loop_ = &loop;
  next_ = function;
  next_context_ = context;
}

void ControlMethods::add(ControlMethod method, ControlCall::Function function, void* context) {
  BP_ASSERT(function != nullptr && method.parameters.size() <= kControlParametersMax);
  if (!owner_.empty()) method.name = owner_ + "." + method.name;
  BP_ASSERT(find(method.name) == nullptr);
  method.function = function;
  method.context = context;
  method.asker = current_heap_owner();
  methods_.push_back(std::move(method));
}

const ControlMethod* ControlMethods::find(std::string_view name) const noexcept {
  const auto found = std::find_if(methods_.begin(), methods_.end(),
                                  [name](const ControlMethod& each) { return each.name == name; });
  return found == methods_.end() ? nullptr : &*found;
}

}  // namespace bedplate
