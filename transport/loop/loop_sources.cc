#include "transport/loop/loop_sources.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate {

LoopSources::LoopSources(uint32_t count_max)
    : count_max_(count_max), sources_(std::make_unique<LoopSource[]>(count_max)) {}

bool LoopSources::is_valid() const noexcept {
  if (count_ > count_max_) return false;
  for (uint32_t i = 0; i < count_; ++i) {
    const LoopSource& each = sources_[i];
    if (each.source == nullptr || each.budget == 0 || each.name == nullptr) return false;
  }
  return true;
}

void LoopSources::add(PollSource& source, uint32_t budget, const char* name,
                      SourceCounters* counters) noexcept {
  BP_REQUIRE(count_ < count_max_,
             "more sources are added to a loop than it may have, %u: "
             "EventLoopOptions::source_count_max",
             count_max_);
  BP_REQUIRE(budget > 0 && name != nullptr,
             "a source is added without a budget or a name: EventLoop::add_source");
  sources_[count_++] = {&source, budget, name, counters, current_heap_owner()};
}

void LoopSources::announce_sleep() const noexcept {
  for (uint32_t i = 0; i < count_; ++i) {
    follow_heap_owner(sources_[i].asker);  // it may start a watch
    sources_[i].source->announce_sleep();
  }
}

void LoopSources::announce_awake() const noexcept {
  for (uint32_t i = 0; i < count_; ++i) sources_[i].source->announce_awake();
}

uint64_t LoopSources::sleep_max_ns() const noexcept {
  uint64_t limit_ns = PollSource::kUnlimitedNs;
  for (uint32_t i = 0; i < count_; ++i) {
    limit_ns = std::min(limit_ns, sources_[i].source->sleep_max_ns());
  }
  return limit_ns;
}

}  // namespace bedplate
