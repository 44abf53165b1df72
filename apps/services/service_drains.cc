#include "apps/services/service_drains.h"

#include "apps/services/service_calls.h"
#include "platform/assert.h"
#include "platform/log.h"
#include "platform/text.h"

namespace bedplate {

const char* to_text(ServiceDrains::State state) noexcept {
  constexpr const char* kTexts[] = {"serving", "wished", "draining", "drained"};
  return kTexts[static_cast<size_t>(state)];
}

void ServiceDrains::create(std::span<Service* const> services) {
  BP_ASSERT(entries_.empty());
  for (Service* service : services) entries_.emplace_back().service = service;
}

std::optional<size_t> ServiceDrains::find(std::string_view name) const noexcept {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (name == name_of(i)) return i;
  }
  return std::nullopt;
}

const char* ServiceDrains::name_of(size_t index) const noexcept {
  BP_ASSERT(index < entries_.size());
  return entries_[index].service->name();
}

ServiceDrains::State ServiceDrains::state_of(size_t index) const noexcept {
  BP_ASSERT(index < entries_.size());
  return entries_[index].state.load(std::memory_order_relaxed);
}

bool ServiceDrains::drains_alone(size_t index) const noexcept {
  BP_ASSERT(index < entries_.size());
  const Service& service = *entries_[index].service;
  return in_service(service, [&] { return service.drains_alone(); });
}

void ServiceDrains::wish(size_t index) noexcept {
  BP_ASSERT(drains_alone(index));
  State serving = State::kServing;
  entries_[index].state.compare_exchange_strong(serving, State::kWished, std::memory_order_relaxed);
}

void ServiceDrains::begin(Entry& entry) noexcept {
  BP_ASSERT(entry.state.load(std::memory_order_relaxed) < State::kDraining);
  entry.state.store(State::kDraining, std::memory_order_relaxed);
  in_service_on_main_thread(*entry.service, "request_drain()",
                            [&] { entry.service->request_drain(); });
}

bool ServiceDrains::is_drained(const Entry& entry) noexcept {
  return in_service_on_main_thread(*entry.service, "is_drained()",
                                   [&] { return entry.service->is_drained(); });
}

void ServiceDrains::turn() noexcept {
  for (Entry& entry : entries_) {
    const State state = entry.state.load(std::memory_order_relaxed);
    if (state == State::kWished) {
      BP_LOG_INFO("%s: draining on request; it serves again after a restart",
                  entry.service->name());
      begin(entry);
    } else if (state == State::kDraining && is_drained(entry)) {
      BP_LOG_INFO("%s: drained", entry.service->name());
      entry.state.store(State::kDrained, std::memory_order_relaxed);
    }
  }
}

void ServiceDrains::begin_all() noexcept {
  for (Entry& entry : entries_) {
    if (entry.state.load(std::memory_order_relaxed) < State::kDraining) begin(entry);
  }
}

std::string ServiceDrains::undrained() const {
  std::string names;
  for (const Entry& entry : entries_) {
    if (!is_drained(entry)) add_word(&names, entry.service->name());
  }
  return names;
}

}  // namespace bedplate
