// The counters of an event loop and of the sources that it polls. Written by their shard, read by
// `bedplate stats`.
#pragma once

#include "platform/cache_line.h"
#include "platform/counter.h"
#include "platform/histogram.h"

namespace bedplate {

class CounterTable;

// Times when something kept a loop, or its thread from its core.
struct StallCounters {
  Counter stalls;       // how often something kept the loop for longer than it may
  Counter longest_ns;   // the longest of these
  Counter preemptions;  // how often the thread was kept from its core for so long
  Counter standstills;  // how often the whole process stood still for so long
};

// Time is counted at each look at the clock that the loop takes anyway: since the last one it was
// busy if anything had work, else it spun. The kernel works for the thread while it waits (io_uring
// copies there): the thread's processor time beyond the counted time is busy too, asked for at
// looks that are kCpuLookNs apart or more. The rest of the time it slept. So busy and spin together
// are no less than the processor time of the thread, up to the last look.
struct EventLoopCounters {
  Counter iterations;
  Counter sleeps;
  Counter busy_ns;
  Counter spin_ns;
  Counter is_asleep;
  Counter calls;  // of other threads
  StallCounters stalled;
  Counter call_stalls;   // of these, those that a call had a part in
  Counter timer_stalls;  // and a timer
  Histogram round;       // ns of a round with work, of one in kRoundsPerMeasure
};

// Counters of a source, or of several that are counted together.
struct alignas(kCacheLineBytes) SourceCounters {
  Histogram round;  // ns that it takes of a round in which it has work, of one in kRoundsPerMeasure
  // Stalls that it had a part in: it was timed and took so long, or had work while nothing was
  // timed by itself.
  Counter stalls;
};

void describe(CounterTable& table, EventLoopCounters& counters);
// Its rounds by themselves: a shard has more counters in between.
void describe_rounds(CounterTable& table, EventLoopCounters& counters);
void describe(CounterTable& table, SourceCounters& counters);

}  // namespace bedplate
