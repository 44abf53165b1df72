#include "transport/loop/awake_time.h"

#include "platform/clock.h"

namespace bedplate {

uint64_t AwakeTime::awake_ns() const noexcept {
  return counters_.busy_ns.read() + counters_.spin_ns.read();
}

void AwakeTime::begin(uint64_t now_ns) noexcept {
  counted_ns_ = cpu_looked_ns_ = now_ns;
  cpu_ns_ = thread_cpu_ns();
  cpu_counted_ns_ = awake_ns();
}

void AwakeTime::look_at_cpu(uint64_t now_ns) noexcept {
  const uint64_t cpu_ns = thread_cpu_ns();
  const uint64_t had_ns = cpu_ns - std::exchange(cpu_ns_, cpu_ns);
  const uint64_t counted_ns = awake_ns() - cpu_counted_ns_;
  if (had_ns > counted_ns) counters_.busy_ns.add(had_ns - counted_ns);
  cpu_counted_ns_ = awake_ns();
  cpu_looked_ns_ = now_ns;
}

}  // namespace bedplate
