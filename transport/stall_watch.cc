#include "transport/stall_watch.h"

#include <algorithm>
#include <charconv>

#include <fcntl.h>
#include <unistd.h>

#include "platform/log.h"
#include "platform/units.h"

namespace bedplate {

void StallWatch::begin(uint64_t limit_ns, StallCounters& counters, uint64_t now_ns) noexcept {
  counters_ = &counters;
  marked_ns_ = now_ns;
  if (limit_ns == 0) return;
  limit_ns_ = limit_ns;
  refresh_ns_ = limit_ns / 4;
  schedstat_ = Fd(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  refresh_waiting(now_ns);
}

// "RAN_NS WAITED_NS SLICES": how long the thread could have run and was not let.
uint64_t StallWatch::read_waited_ns() const noexcept {
  if (!schedstat_.is_open()) return 0;
  char text[96];
  const ssize_t bytes = pread(schedstat_.number(), text, sizeof text, 0);
  if (bytes <= 0) return 0;
  const char* end = text + bytes;
  const char* second = std::find<const char*>(text, end, ' ');
  uint64_t waited_ns = 0;
  if (second != end) std::from_chars(second + 1, end, waited_ns);
  return waited_ns;
}

void StallWatch::refresh_waiting(uint64_t now_ns) noexcept {
  waited_ns_ = read_waited_ns();
  waited_at_ns_ = now_ns;
}

bool StallWatch::note(uint64_t took_ns, uint64_t now_ns, const char* name,
                      const char* had_work) noexcept {
  const uint64_t waited_ns = std::min(read_waited_ns() - waited_ns_, took_ns);
  refresh_waiting(now_ns);
  const unsigned long long took_ms = took_ns / kNsPerMs;
  const unsigned long long waited_ms = waited_ns / kNsPerMs;
  const unsigned long long limit_ms = limit_ns_ / kNsPerMs;
  if (took_ns - waited_ns <= limit_ns_) {
    counters_->preemptions.add(1);
    if (!preemption_limit_.try_pass("event loops that wait for their core")) return false;
    BP_LOG_WARNING("an event loop waited %llu ms for its core, which ran something else; give the "
                   "shard a core of its own",
                   waited_ms);
    return false;
  }
  counters_->stalls.add(1);
  counters_->longest_ns.set(std::max(counters_->longest_ns.read(), took_ns));
  timing_until_ns_ = now_ns + kTimingNs;
  if (!stall_limit_.try_pass("stalls of an event loop")) return true;
  if (name != nullptr) {
    BP_LOG_WARNING("%s kept its event loop for %llu ms, %llu of them without a core (stall_ms is "
                   "%llu)",
                   name, took_ms, waited_ms, limit_ms);
  } else {
    BP_LOG_WARNING("an event loop was kept for %llu ms, %llu of them without a core (stall_ms is "
                   "%llu); work had: %s; each is timed for the next %u s",
                   took_ms, waited_ms, limit_ms, had_work,
                   static_cast<unsigned>(kTimingNs / kNsPerSecond));
  }
  return true;
}

}  // namespace bedplate
