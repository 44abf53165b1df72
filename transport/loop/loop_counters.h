// The counters of an event loop and of the sources that it polls. The shard writes them, `bedplate
// stats` reads them.
#pragma once

#include "platform/cache_line.h"
#include "platform/counter.h"
#include "platform/histogram.h"

namespace bedplate {

class CounterTable;

// Times when work kept a loop too long, or its thread did not get its core.
struct StallCounters {
  Counter stalls;       // how often work kept the loop for longer than stall_ns
  Counter longest_ns;   // the longest stall
  Counter preemptions;  // how often the thread waited that long for its core
  Counter standstills;  // how often the whole process stood still that long
};

// The loop counts time at each look at the clock that it takes anyway: the time since the last look
// is busy if anything had work, else spin. The kernel also works for the thread while the thread
// waits (io_uring copies there), so processor time of the thread beyond the counted time is busy,
// too. The loop asks for it now and then before it sleeps, and when run() ends. All other time is
// sleep. So busy and spin together are at least the thread's processor time, up to the last such
// question.
struct EventLoopCounters {
  // The loop measures one in this many rounds with work: it looks at the clock after each source
  // that had work. This costs busy rounds 2 ns each on average, and idle rounds nothing.
  static constexpr uint32_t kRoundsPerMeasure = 16;

  Counter iterations;
  Counter sleeps;
  Counter busy_ns;
  Counter spin_ns;
  Counter is_asleep;
  Counter calls;  // calls from other threads
  StallCounters stalled;
  Counter call_stalls;   // stalls in which a call had a part
  Counter timer_stalls;  // stalls in which a timer had a part
  Histogram round;       // ns of a round with work; one in kRoundsPerMeasure is measured
};

// Counters of a source, or of several sources that are counted together.
struct alignas(kCacheLineBytes) SourceCounters {
  Histogram round;  // ns of this source in a round in which it has work; one in kRoundsPerMeasure
  // Stalls in which the source had a part: it was timed and took that long, or it had work while
  // the sources were not timed one by one.
  Counter stalls;
};

void describe(CounterTable& table, EventLoopCounters& counters);
// Describes the histogram of rounds, separately: a shard describes other counters in between.
void describe_rounds(CounterTable& table, EventLoopCounters& counters);
void describe(CounterTable& table, SourceCounters& counters);

}  // namespace bedplate
