#include "transport/messenger.h"

#include <algorithm>
#include <cstdio>

namespace bedplate {

void Messenger::add_provider(Provider& provider) noexcept {
  BP_ASSERT(provider_count_ < kProviderCountMax);
  providers_[provider_count_++] = &provider;
}

Result<Endpoint*> Messenger::connect(const PeerAddress& peer) {
  // One provider: its own words. Several: each one's answer, and the last one's cure.
  Error last;
  char answers[sizeof last.answer] = {};
  size_t used = 0;
  for (uint32_t i = 0; i < provider_count_; ++i) {
    auto endpoint = providers_[i]->connect(peer);
    if (endpoint.ok()) return endpoint;
    last = endpoint.error();
    const int printed = std::snprintf(answers + used, sizeof answers - used, "%s%s: %s",
                                      i == 0 ? "" : "; ", providers_[i]->name(), last.answer);
    used = std::min(used + static_cast<size_t>(printed), sizeof answers - 1);
  }
  if (provider_count_ == 0) {
    last.set_doing("connecting to a peer");
    last.set_answer("this messenger has no providers");
    return last.set_cure("add one (Messenger::add_provider)");
  }
  last.set_answer("%s", answers);
  return last;
}

uint32_t Messenger::poll(uint32_t budget) noexcept {
  uint32_t count = 0;
  for (uint32_t i = 0; i < provider_count_; ++i) count += providers_[i]->poll(budget);
  return count;
}

void Messenger::announce_sleep() noexcept {
  for (uint32_t i = 0; i < provider_count_; ++i) providers_[i]->announce_sleep();
}

void Messenger::announce_awake() noexcept {
  for (uint32_t i = 0; i < provider_count_; ++i) providers_[i]->announce_awake();
}

void Messenger::wait(uint64_t timeout_ns) noexcept {
  Provider* sleeper = nullptr;
  for (uint32_t i = 0; i < provider_count_; ++i) {
    if (providers_[i]->can_sleep()) sleeper = providers_[i];
  }
  BP_ASSERT(sleeper != nullptr);
  announce_sleep();
  // Once more: from here on whoever sends wakes us.
  if (poll(kLastLookBudget) == 0) sleeper->sleep(timeout_ns);
  announce_awake();
}

}  // namespace bedplate
