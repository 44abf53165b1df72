#include "apps/services/limit_methods.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "apps/services/limit_settings.h"
#include "platform/assert.h"
#include "platform/product.h"
#include "platform/shown_text.h"

namespace bedplate {
namespace {

bool is_limit(std::string_view key) noexcept {
  return std::any_of(std::begin(kLimitKeys), std::end(kLimitKeys),
                     [key](const LimitKey& each) { return each.is_limit && each.name == key; });
}

// The names of all kinds, each between two of `quote`.
std::string joined(std::span<const LimitMethods::Kind> kinds, const std::string& quote) {
  std::string all;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (i > 0) all += i + 1 < kinds.size() ? ", " : " or ";
    all += quote + kinds[i].name + quote;
  }
  return all;
}

}  // namespace

LimitMethods::LimitMethods(const Terms& terms) : terms_(terms), kinds_(joined(terms.kinds, "")) {
  BP_ASSERT(terms.service != nullptr && terms.limits != nullptr && terms.drains != nullptr &&
            terms.change != nullptr);
}

void LimitMethods::add_to(ControlMethods& methods) {
  std::vector<ControlParameter> which;
  for (const Kind& kind : terms_.kinds) {
    which.push_back({kind.name, ControlType::kText, terms_.kinds.size() == 1, kind.help});
  }
  std::vector<ControlParameter> rates = which;
  for (const LimitKey& key : kLimitKeys) {
    rates.push_back({key.name, ControlType::kNumber, false, key.help});
  }
  which.push_back({.name = "key",
                   .is_required = false,
                   .help = "The one to end, such as read_rate_bytes; default: all."});
  const std::string quoted = joined(terms_.kinds, "\"");
  const std::string result = "{" + quoted + ", ..., \"reads_waiting\": N, \"writes_waiting\": N}";
  const std::string needs = std::string("that ") + terms_.service + " does not drain";
  methods.add(
      {.name = "limits",
       .result = "[{" + quoted + ", ...}]",
       .help = "Lists the limits, as the method `limit` answers them; null: there is none."},
      [](void* self, ControlCall& call) noexcept { static_cast<LimitMethods*>(self)->list(call); },
      this);
  methods.add(
      {.name = "limit",
       .parameters = rates,
       .result = result,
       .help = "Changes limits from the next request on; those that are not given stay. Requests "
               "that wait go on as the new ones allow.",
       .needs = needs},
      [](void* self, ControlCall& call) noexcept { static_cast<LimitMethods*>(self)->set(call); },
      this);
  methods.add(
      {.name = "unlimit",
       .parameters = which,
       .result = result,
       .help = "Ends limits; requests that wait for them go on at once.",
       .needs = needs},
      [](void* self, ControlCall& call) noexcept { static_cast<LimitMethods*>(self)->end(call); },
      this);
}

// Refuses the call, and returns nullptr, if it does not name one limit.
const LimitMethods::Named* LimitMethods::find(ControlCall& call) const noexcept {
  const std::span<const Kind> kinds = terms_.kinds;
  const auto count = std::count_if(kinds.begin(), kinds.end(),
                                   [&call](const Kind& each) { return call.has(each.name); });
  if (count != 1) {
    call.refuse(
        error_while("looking for a limit")
            .set_answer("%s %s is given", count == 0 ? "no" : "more than one", kinds_.c_str())
            .set_cure("give one: see %s ctl %s.limits", product().name, terms_.service));
    return nullptr;
  }
  size_t kind = 0;
  while (!call.has(kinds[kind].name)) ++kind;
  const std::string_view name = call.text(kinds[kind].name);
  for (const Named& each : terms_.limits->all()) {
    if (each.kind == kind && each.name == name) return &each;
  }
  call.refuse(error_while("looking for the %s %s", kinds[kind].name, ShownText(name).c_str())
                  .set_answer("%s has no %s of this name", terms_.service, kinds[kind].name)
                  .set_cure("see: %s ctl %s.limits", product().name, terms_.service));
  return nullptr;
}

void LimitMethods::write(JsonText& json, const Named& named) const noexcept {
  json.begin_object().key(terms_.kinds[named.kind].name).text(named.name);
  for (const LimitKey& key : kLimitKeys) {
    const uint64_t value = named.limit.rates().*key.value;
    json.key(key.name);
    value == 0 ? json.null() : json.number(value);
  }
  json.key("reads_waiting").number(named.limit.reads_waiting());
  json.key("writes_waiting").number(named.limit.writes_waiting()).end_object();
}

void LimitMethods::list(ControlCall& call) noexcept {
  constexpr size_t kAtOnce = 8;
  const auto write_some = [](void* self, ControlCall& there) noexcept {
    const auto& methods = *static_cast<const LimitMethods*>(self);
    const auto& all = methods.terms_.limits->all();
    if (there.page() == 0) there.result().begin_array();
    const size_t behind = std::min<size_t>(there.page() + kAtOnce, all.size());
    for (size_t i = there.page(); i < behind; ++i) methods.write(there.result(), all[i]);
    behind < all.size() ? there.more(behind) : (void)there.result().end_array();
  };
  BP_ASSERT(!terms_.limits->all().empty());
  call.go_on(terms_.limits->all().front().limit.loop(), write_some, this);
}

void LimitMethods::set(ControlCall& call) noexcept {
  const Named* const named = find(call);
  if (named == nullptr) return;
  const auto is_given = [&call](const LimitKey& key) { return call.has(key.name); };
  if (std::none_of(std::begin(kLimitKeys), std::end(kLimitKeys), is_given)) {
    call.refuse(error_while("changing a limit")
                    .set_answer("no new value is given")
                    .set_cure("give one, such as read_rate=1000"));
    return;
  }
  for (const LimitKey& key : kLimitKeys) {
    const uint64_t value = call.number(key.name, key.min);
    if (value >= key.min && value <= key.max) continue;
    call.refuse(error_while("changing a limit")
                    .set_answer("%s is %" PRIu64, key.name, value)
                    .set_cure("expected %" PRIu64 "..%" PRIu64 "; %s ctl %s.unlimit ends a limit",
                              key.min, key.max, product().name, terms_.service));
    return;
  }
  const auto set_there = [](void* self, ControlCall& there) noexcept {
    auto& methods = *static_cast<LimitMethods*>(self);
    const Named& limited = *methods.find(there);
    LimitRates rates = limited.limit.rates();
    for (const LimitKey& key : kLimitKeys) {
      if (there.has(key.name)) rates.*key.value = there.number(key.name);
    }
    methods.change(there, limited, rates);
  };
  call.go_on(named->limit.loop(), set_there, this);
}

void LimitMethods::end(ControlCall& call) noexcept {
  const Named* const named = find(call);
  if (named == nullptr) return;
  if (call.has("key") && !is_limit(call.text("key"))) {
    call.refuse(error_while("ending the limit %s", ShownText(call.text("key")).c_str())
                    .set_answer("no limit has this name")
                    .set_cure("expected one of the parameters of %s.limit: see %s ctl --list",
                              terms_.service, product().name));
    return;
  }
  const auto end_there = [](void* self, ControlCall& there) noexcept {
    auto& methods = *static_cast<LimitMethods*>(self);
    const Named& limited = *methods.find(there);
    LimitRates rates = limited.limit.rates();
    for (const LimitKey& key : kLimitKeys) {
      if (key.is_limit && there.text("key", key.name) == key.name) rates.*key.value = 0;
    }
    methods.change(there, limited, rates);
  };
  call.go_on(named->limit.loop(), end_there, this);
}

// Threads: the loop's of the limits.
void LimitMethods::change(ControlCall& there, const Named& named,
                          const LimitRates& rates) noexcept {
  // The drain ends limits by a call on this loop. That call ran before this one, or will run after
  // it.
  if (terms_.drains->load(std::memory_order_relaxed)) {
    there.refuse(error_while("changing the limit of the %s %s", terms_.kinds[named.kind].name,
                             ShownText(named.name).c_str())
                     .set_answer("%s is draining: waiting requests are answered", terms_.service)
                     .set_cure("change it after the next start"));
    return;
  }
  terms_.change(terms_.context, named.limit, rates);
  write(there.result(), named);
}

}  // namespace bedplate
