#include "apps/services/service_limits.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate {

void ServiceLimits::add(uint8_t kind, std::string_view name, RequestLimit& limit) {
  BP_DCHECK(find(kind, name) == nullptr);
  BP_DCHECK(all_.empty() || &all_.front().limit.loop() == &limit.loop());
  all_.push_back({kind, name, limit});
}

RequestLimit* ServiceLimits::find(uint8_t kind, std::string_view name) const noexcept {
  for (const Named& each : all_) {
    if (each.kind == kind && each.name == name) return &each.limit;
  }
  return nullptr;
}

bool ServiceLimits::are_on() const noexcept {
  return std::any_of(all_.begin(), all_.end(),
                     [](const Named& each) { return each.limit.rates().are_limited(); });
}

void ServiceLimits::end() noexcept {
  for (const Named& each : all_) each.limit.set({});
}

}  // namespace bedplate
