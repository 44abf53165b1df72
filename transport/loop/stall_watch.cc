#include "transport/loop/stall_watch.h"

#include <algorithm>
#include <cstdio>

#include <fcntl.h>
#include <unistd.h>

#include "platform/log.h"
#include "platform/process_pulse.h"
#include "platform/text_words.h"
#include "platform/units.h"
#include "transport/loop/shard_plan.h"

namespace bedplate {

void StallWatch::begin(const StallWatchOptions& options, uint64_t now_ns) noexcept {
  counters_ = options.counters;
  pulse_ = options.pulse;
  plan_ = options.plan;
  if (plan_ != nullptr) std::snprintf(loop_, sizeof loop_, "shard %s", plan_->shard());
  marked_ns_ = now_ns;
  if (options.limit_ns == 0) return;
  limit_ns_ = options.limit_ns;
  refresh_ns_ = limit_ns_ / 4;
  schedstat_ = Fd(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  refresh_lost(now_ns);
}

// The file reads "RAN_NS WAITED_NS SLICES"; WAITED_NS is the time that the thread was runnable but
// had no core.
uint64_t StallWatch::read_waited_ns() const noexcept {
  if (!schedstat_.is_open()) return 0;
  char text[96];
  const ssize_t bytes = pread(schedstat_.number(), text, sizeof text, 0);
  if (bytes <= 0) return 0;
  std::string_view numbers(text, static_cast<size_t>(bytes));
  take_number<uint64_t>(&numbers, 0);
  return take_number<uint64_t>(&numbers, 0);
}

StallWatch::LostTime StallWatch::read_lost(uint64_t now_ns) const noexcept {
  return {.waited_ns = read_waited_ns(),
          .still_ms = pulse_ == nullptr ? 0 : pulse_->still_ms(now_ns)};
}

void StallWatch::refresh_lost(uint64_t now_ns) noexcept {
  lost_ = read_lost(now_ns);
  lost_at_ns_ = now_ns;
}

void StallWatch::tell_lost(uint64_t waited_ns, uint64_t still_ns) noexcept {
  if (still_ns > waited_ns) {
    counters_->standstills.add(1);
    if (!standstill_limit_.try_pass("standstills of the process")) return;
    BP_LOG_WARNING("the whole process stood still for %llu ms: it was stopped by a signal or a "
                   "debugger, or its control group was frozen or had used up its quota (cpu.max)",
                   static_cast<unsigned long long>(still_ns / kNsPerMs));
    return;
  }
  counters_->preemptions.add(1);
  if (!preemption_limit_.try_pass("event loops that wait for their core")) return;
  BP_LOG_WARNING("%s waited %llu ms for its core, which ran something else; give the shard a core "
                 "of its own",
                 loop_, static_cast<unsigned long long>(waited_ns / kNsPerMs));
}

void StallWatch::tell_stall(const LongTime& time, uint64_t lost_ns) noexcept {
  const unsigned long long took_ms = time.took_ns / kNsPerMs;
  const unsigned long long lost_ms = lost_ns / kNsPerMs;
  const unsigned long long limit_ms = limit_ns_ / kNsPerMs;
  if (time.name != nullptr) {
    char services[128] = "";
    if (plan_ != nullptr) plan_->list(time.askers, services, sizeof services);
    BP_LOG_WARNING("%s%s occupied %s for %llu ms, %llu of them without a core (stall_ms is %llu)",
                   time.name, services, loop_, took_ms, lost_ms, limit_ms);
  } else {
    BP_LOG_WARNING("%s was occupied for %llu ms, %llu of them without a core (stall_ms is %llu); "
                   "with work: %s; each is timed for the next %u s",
                   loop_, took_ms, lost_ms, limit_ms, time.had_work,
                   static_cast<unsigned>(kTimingNs / kNsPerSecond));
  }
}

bool StallWatch::note(const LongTime& time, uint64_t now_ns) noexcept {
  const LostTime before = lost_;
  refresh_lost(now_ns);
  const uint64_t waited_ns = lost_.waited_ns - before.waited_ns;
  const uint64_t still_ns = uint64_t{lost_.still_ms - before.still_ms} * kNsPerMs;
  // The same time may count as both: a process whose quota is used up is still runnable.
  const uint64_t lost_ns = std::min(std::max(waited_ns, still_ns), time.took_ns);
  if (time.took_ns - lost_ns <= limit_ns_) {
    tell_lost(waited_ns, still_ns);
    return false;
  }
  counters_->stalls.add(1);
  counters_->longest_ns.set(std::max(counters_->longest_ns.read(), time.took_ns));
  timing_until_ns_ = now_ns + kTimingNs;
  if (stall_limit_.try_pass("stalls of an event loop")) tell_stall(time, lost_ns);
  return true;
}

}  // namespace bedplate
