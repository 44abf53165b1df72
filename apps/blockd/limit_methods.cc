// blockd's methods on the control socket for limits: list, change and end them.
#include <algorithm>
#include <cinttypes>
#include <iterator>
#include <string_view>
#include <vector>

#include "apps/blockd/block_service.h"
#include "apps/blockd/limit_settings.h"
#include "apps/services/control_methods.h"
#include "platform/product.h"
#include "platform/shown_text.h"

namespace bedplate {
namespace {

// The kinds of limits, in the order of LimitKind. A call names a limit by one of these parameters.
constexpr const char* kKinds[] = {"volume", "tenant", "listener"};

// Calls `kMethod` of the service.
template <auto kMethod>
void call(void* self, ControlCall& call) noexcept {
  (static_cast<BlockService*>(self)->*kMethod)(call);
}

bool is_limit(std::string_view key) noexcept {
  return std::any_of(std::begin(kLimitKeys), std::end(kLimitKeys),
                     [key](const LimitKey& each) { return each.is_limit && each.name == key; });
}

// The kind of the limit that the call names. Requires: it names one.
size_t kind_of(const ControlCall& call) noexcept {
  size_t kind = 0;
  while (!call.has(kKinds[kind])) ++kind;
  return kind;
}

void write(JsonText& json, LimitKind kind, std::string_view name, const BlockLimit& limit) {
  json.begin_object().key(kKinds[static_cast<size_t>(kind)]).text(name);
  for (const LimitKey& key : kLimitKeys) {
    const uint64_t value = limit.rates().*key.value;
    json.key(key.name);
    value == 0 ? json.null() : json.number(value);
  }
  json.key("reads_waiting").number(limit.reads_waiting());
  json.key("writes_waiting").number(limit.writes_waiting()).end_object();
}

}  // namespace

void BlockService::limit_methods(ControlMethods& methods) {
  std::vector<ControlParameter> which = {
      {"volume", ControlType::kText, false,
       "A volume's name; give one of volume, tenant and listener."},
      {"tenant", ControlType::kText, false, "A name in [[blockd.tenant]]."},
      {"listener", ControlType::kText, false, "An address of listen."}};
  std::vector<ControlParameter> rates = which;
  for (const LimitKey& key : kLimitKeys) {
    rates.push_back({key.name, ControlType::kNumber, false, key.help});
  }
  which.push_back({.name = "key",
                   .is_required = false,
                   .help = "The one to end, such as read_rate_bytes; default: all."});
  const char* result = "{\"volume\", \"tenant\" or \"listener\", ..., \"reads_waiting\": N, "
                       "\"writes_waiting\": N}";
  methods.add(
      {.name = "limits",
       .result = "[{\"volume\", \"tenant\" or \"listener\", ...}]",
       .help = "Lists the limits, as the method `limit` answers them; null: there is none."},
      &call<&BlockService::list_limits>, this);
  methods.add({.name = "limit",
               .parameters = rates,
               .result = result,
               .help = "Changes limits from the next request on; those that are not given stay. "
                       "Requests that wait go on as the new ones allow.",
               .needs = "that blockd does not drain"},
              &call<&BlockService::set_limit>, this);
  methods.add({.name = "unlimit",
               .parameters = which,
               .result = result,
               .help = "Ends limits; requests that wait for them go on at once.",
               .needs = "that blockd does not drain"},
              &call<&BlockService::end_limit>, this);
}

// Refuses the call, and returns nullptr, if it does not name one limit.
BlockLimit* BlockService::find_limit(ControlCall& call) noexcept {
  const auto count = std::count_if(std::begin(kKinds), std::end(kKinds),
                                   [&call](const char* each) { return call.has(each); });
  if (count != 1) {
    call.refuse(error_while("looking for a limit")
                    .set_answer("%s volume, tenant or listener is given",
                                count == 0 ? "no" : "more than one")
                    .set_cure("give one: see %s ctl blockd.limits", product().name));
    return nullptr;
  }
  const size_t kind = kind_of(call);
  const std::string_view name = call.text(kKinds[kind]);
  BlockLimit* const limit = server_.limits().find(static_cast<LimitKind>(kind), name);
  if (limit != nullptr) return limit;
  call.refuse(error_while("looking for the %s %s", kKinds[kind], ShownText(name).c_str())
                  .set_answer("blockd has no %s of this name", kKinds[kind])
                  .set_cure("see: %s ctl blockd.limits", product().name));
  return nullptr;
}

void BlockService::list_limits(ControlCall& call) noexcept {
  constexpr size_t kAtOnce = 8;
  const auto write_some = [](void* self, ControlCall& there) noexcept {
    auto& all = static_cast<BlockService*>(self)->server_.limits().all();
    if (there.page() == 0) there.result().begin_array();
    const size_t end = std::min<size_t>(there.page() + kAtOnce, all.size());
    for (size_t i = there.page(); i < end; ++i) {
      write(there.result(), all[i].plan.kind, all[i].plan.name, all[i].limit);
    }
    end < all.size() ? there.more(end) : (void)there.result().end_array();
  };
  call.go_on(server_.connections_loop(), write_some, this);
}

void BlockService::set_limit(ControlCall& call) noexcept {
  if (find_limit(call) == nullptr) return;
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
                    .set_cure("expected %" PRIu64 "..%" PRIu64
                              "; %s ctl blockd.unlimit ends a limit",
                              key.min, key.max, product().name));
    return;
  }
  const auto set = [](void* self, ControlCall& there) noexcept {
    auto& service = *static_cast<BlockService*>(self);
    BlockLimit& limit = *service.find_limit(there);
    LimitRates rates = limit.rates();
    for (const LimitKey& key : kLimitKeys) {
      if (there.has(key.name)) rates.*key.value = there.number(key.name);
    }
    service.change_limit(there, limit, rates);
  };
  call.go_on(server_.connections_loop(), set, this);
}

void BlockService::end_limit(ControlCall& call) noexcept {
  if (find_limit(call) == nullptr) return;
  if (call.has("key") && !is_limit(call.text("key"))) {
    call.refuse(error_while("ending the limit %s", ShownText(call.text("key")).c_str())
                    .set_answer("no limit has this name")
                    .set_cure("expected one of the parameters of blockd.limit: see %s ctl --list",
                              product().name));
    return;
  }
  const auto end = [](void* self, ControlCall& there) noexcept {
    auto& service = *static_cast<BlockService*>(self);
    BlockLimit& limit = *service.find_limit(there);
    LimitRates rates = limit.rates();
    for (const LimitKey& key : kLimitKeys) {
      if (key.is_limit && there.text("key", key.name) == key.name) rates.*key.value = 0;
    }
    service.change_limit(there, limit, rates);
  };
  call.go_on(server_.connections_loop(), end, this);
}

// Threads: the connections' shard.
void BlockService::change_limit(ControlCall& there, BlockLimit& limit,
                                const LimitRates& rates) noexcept {
  const size_t kind = kind_of(there);
  const std::string_view name = there.text(kKinds[kind]);
  // The drain ends limits by a call on this loop. That call ran before this one, or will run after
  // it.
  if (is_draining_.load(std::memory_order_relaxed)) {
    there.refuse(
        error_while("changing the limit of the %s %s", kKinds[kind], ShownText(name).c_str())
            .set_answer("blockd is draining: waiting requests are answered")
            .set_cure("change it after the next start"));
    return;
  }
  server_.set_limit(limit, rates);
  write(there.result(), limit.kind(), name, limit);
}

}  // namespace bedplate
