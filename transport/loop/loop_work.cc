#include "transport/loop/loop_work.h"

#include <cstdio>

namespace bedplate {

// In the log of stalls.
static constexpr char kCall[] = "a call from another thread";
static constexpr char kTimer[] = "a timer";

void LoopWork::mark_calls(uint64_t now_ns, OwnerSet askers) noexcept {
  if (stall_watch_.mark(now_ns, kCall, askers)) counters_.call_stalls.add(1);
}

void LoopWork::mark_timers(uint64_t now_ns, OwnerSet askers) noexcept {
  if (stall_watch_.mark(now_ns, kTimer, askers)) counters_.timer_stalls.add(1);
}

void LoopWork::mark_source(uint64_t now_ns, uint32_t index) noexcept {
  const LoopSource& source = sources_[index];
  if (stall_watch_.mark(now_ns, source.name)) count_stall_of(source);
}

void LoopWork::note_stall(uint64_t now_ns) noexcept {
  char text[256];
  if (!stall_watch_.mark_any(now_ns, list(text, sizeof text))) return;
  if (has(kCallsBit)) counters_.call_stalls.add(1);
  if (has(kTimersBit)) counters_.timer_stalls.add(1);
  for (uint32_t i = 0; i < sources_.count(); ++i) {
    if (has(bit_of(i))) count_stall_of(sources_[i]);
  }
}

void LoopWork::count_stall_of(const LoopSource& source) noexcept {
  if (source.counters != nullptr) source.counters->stalls.add(1);
}

const char* LoopWork::list(char* text, size_t text_bytes) const noexcept {
  std::snprintf(text, text_bytes, "nothing");
  size_t used = 0;
  const auto add = [&](uint32_t bit, const char* name, OwnerSet askers = 0) {
    if (!has(bit) || used >= text_bytes) return;
    char services[128] = "";
    if (options_.plan != nullptr) options_.plan->list(askers, services, sizeof services);
    used += static_cast<size_t>(std::snprintf(text + used, text_bytes - used, "%s%s%s",
                                              used == 0 ? "" : ", ", name, services));
  };
  add(kTimersBit, kTimer, timer_askers_);
  add(kCallsBit, kCall, call_askers_);
  for (uint32_t i = 0; i < sources_.count(); ++i) add(bit_of(i), sources_[i].name);
  return text;
}

}  // namespace bedplate
