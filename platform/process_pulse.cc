#include "platform/process_pulse.h"

namespace bedplate {

// The time since the last beat, less the period in which no beat was due.
uint64_t ProcessPulse::late_ms(uint64_t state, uint64_t now_ns) const noexcept {
  if ((state & kResting) != 0) return 0;
  const uint64_t passed_ms = (now_ns / kNsPerMs - (state >> 32)) & kTimeMask;
  // A reader's clock may be a moment behind the beat that it reads.
  if (passed_ms > kTimeMask / 2) return 0;
  return passed_ms > period_ms_ ? passed_ms - period_ms_ : 0;
}

void ProcessPulse::publish(uint64_t now_ns, uint64_t resting) noexcept {
  const uint64_t state = state_.load(std::memory_order_relaxed);  // only this thread writes it
  const auto still = static_cast<uint32_t>(state + late_ms(state, now_ns));
  const uint64_t time = (now_ns / kNsPerMs & kTimeMask) << 32;
  state_.store(resting | time | still, std::memory_order_relaxed);
}

void ProcessPulse::beat(uint64_t now_ns) noexcept { publish(now_ns, 0); }

void ProcessPulse::rest(uint64_t now_ns) noexcept { publish(now_ns, kResting); }

uint32_t ProcessPulse::still_ms(uint64_t now_ns) const noexcept {
  const uint64_t state = state_.load(std::memory_order_relaxed);
  return static_cast<uint32_t>(state + late_ms(state, now_ns));
}

}  // namespace bedplate
