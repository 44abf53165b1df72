// Control-socket methods in C: their part of bedplate_service.h.
#include <algorithm>
#include <cstring>

#include "apps/c_interface/service_c.h"
#include "apps/services/control_methods.h"

using namespace bedplate;

static_assert(BP_TEXT == static_cast<int>(ControlType::kText));
static_assert(BP_NUMBER == static_cast<int>(ControlType::kNumber));
static_assert(BP_BOOLEAN == static_cast<int>(ControlType::kBoolean));

struct bp_methods {
  ControlMethods& methods;
  CService& service;
};

// A bp_control_call is a ControlCall; a bp_json is its JsonText.
static ControlCall& call_of(bp_control_call* call) noexcept {
  return *reinterpret_cast<ControlCall*>(call);
}
static const ControlCall& call_of(const bp_control_call* call) noexcept {
  return *reinterpret_cast<const ControlCall*>(call);
}
static JsonText& text_of(bp_json* json) noexcept { return *reinterpret_cast<JsonText*>(json); }

void CService::methods(ControlMethods& methods) {
  bp_methods added{methods, *this};
  if (c_.methods != nullptr) c_.methods(c_.self, &added);
}

extern "C" {

void bp_method_add(bp_methods* methods, const bp_method* method) {
  ControlMethod added = {.name = method->name, .result = method->result, .help = method->help};
  if (method->needs != nullptr) added.needs = method->needs;
  for (size_t i = 0; i < method->parameter_count; ++i) {
    const bp_parameter& each = method->parameters[i];
    added.parameters.push_back({.name = each.name,
                                .type = static_cast<ControlType>(each.type),
                                .is_required = each.is_optional == 0,
                                .help = each.help});
  }
  CControlMethod& made = methods->service.control_methods.emplace_back();
  made.function = method->function;
  made.self = methods->service.self();
  const auto call = [](void* context, ControlCall& it) noexcept {
    const auto& asked = *static_cast<CControlMethod*>(context);
    asked.function(asked.self, reinterpret_cast<bp_control_call*>(&it));
  };
  methods->methods.add(std::move(added), call, &made);
}

int bp_control_has(const bp_control_call* call, const char* parameter) {
  return call_of(call).has(parameter) ? 1 : 0;
}
size_t bp_control_text(const bp_control_call* call, const char* parameter, char* text,
                       size_t text_bytes) {
  const std::string_view given = call_of(call).text(parameter);
  if (text_bytes == 0) return given.size();
  const size_t copied = std::min(given.size(), text_bytes - 1);
  std::memcpy(text, given.data(), copied);
  text[copied] = '\0';
  return given.size();
}
uint64_t bp_control_number(const bp_control_call* call, const char* parameter) {
  return call_of(call).number(parameter);
}
int bp_control_boolean(const bp_control_call* call, const char* parameter) {
  return call_of(call).boolean(parameter) ? 1 : 0;
}

// The call itself stores `function`, because no other object lives as long.
void bp_control_go_on(bp_control_call* call, bp_loop* loop,
                      void (*function)(void* context, bp_control_call* call), void* context) {
  ControlCall& here = call_of(call);
  here.state.function = reinterpret_cast<void (*)()>(function);
  here.state.context = context;
  const auto go_on = [](void*, ControlCall& there) noexcept {
    const auto next = reinterpret_cast<void (*)(void*, bp_control_call*)>(there.state.function);
    next(there.state.context, reinterpret_cast<bp_control_call*>(&there));
  };
  here.go_on(*loop->loop, go_on, nullptr);
}
void bp_control_refuse(bp_control_call* call, const char* doing, const char* answer,
                       const char* cure) {
  Error error = error_while("%s", doing).set_answer("%s", answer).set_cure("%s", cure);
  call_of(call).refuse(error);
}
uint64_t bp_control_page(const bp_control_call* call) { return call_of(call).page(); }
void bp_control_more(bp_control_call* call, uint64_t page) { call_of(call).more(page); }

bp_json* bp_control_result(bp_control_call* call) {
  return reinterpret_cast<bp_json*>(&call_of(call).result());
}
void bp_json_begin_object(bp_json* json) { text_of(json).begin_object(); }
void bp_json_end_object(bp_json* json) { text_of(json).end_object(); }
void bp_json_begin_array(bp_json* json) { text_of(json).begin_array(); }
void bp_json_end_array(bp_json* json) { text_of(json).end_array(); }
void bp_json_key(bp_json* json, const char* key) { text_of(json).key(key); }
void bp_json_text(bp_json* json, const char* text) { text_of(json).text(text); }
void bp_json_number(bp_json* json, uint64_t number) { text_of(json).number(number); }
void bp_json_boolean(bp_json* json, int value) { text_of(json).boolean(value != 0); }
void bp_json_null(bp_json* json) { text_of(json).null(); }
void bp_json_raw(bp_json* json, const char* value) { text_of(json).raw(value); }

}  // extern "C"
