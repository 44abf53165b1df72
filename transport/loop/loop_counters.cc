#include "transport/loop/loop_counters.h"

#include "platform/counter_table.h"

namespace bedplate {

void describe(CounterTable& table, EventLoopCounters& c) {
  table.counter("iterations", c.iterations, "rounds", "Rounds of the event loop.")
      .alert_as_it_stands("asleep", "it is neither asleep nor going on: something keeps it");
  table.counter("sleeps", c.sleeps, "sleeps", "Sleeps of the event loop.");
  table.counter("busy_ns", c.busy_ns, "ns",
                "Time with work, including the kernel's work for this thread while it slept.");
  table.counter("spin_ns", c.spin_ns, "ns",
                "Time of polling without work. The rest of the time it slept.");
  table.boolean("asleep", c.is_asleep, "It sleeps now.");
  table.counter("calls", c.calls, "calls", "Calls submitted by other threads.");
  table
      .counter("stalls", c.stalled.stalls, "stalls",
               "Steps that occupied it for longer than stall_ms.")
      .alert_as_it_grows("steps occupied it for too long, {stall_longest_ns} at most");
  table.gauge("stall_longest_ns", c.stalled.longest_ns, "ns", "The longest stall.")
      .no_alert("the alert of stalls names it");
  table
      .counter("call_stalls", c.call_stalls, "stalls",
               "Stalls in which a call from another thread ran.")
      .no_alert("stalls counts them");
  table.counter("timer_stalls", c.timer_stalls, "stalls", "Stalls in which a timer ran.")
      .no_alert("stalls counts them");
  table.counter("preemptions", c.stalled.preemptions, "times",
                "Long waits for its core, which ran something else.");
  table.counter("standstills", c.stalled.standstills, "times",
                "Long pauses of the whole process: stopped, frozen or throttled.");
}

void describe_rounds(CounterTable& table, EventLoopCounters& c) {
  table.histogram("round_ns", c.round, "ns",
                  "The time of a round with work; every 16th is measured.");
}

void describe(CounterTable& table, SourceCounters& c) {
  table.histogram("round_ns", c.round, "ns",
                  "Its time in a round in which it has work; every 16th is measured.");
  table
      .counter("stalls", c.stalls, "stalls",
               "Stalls of the shard that it caused or, if that is not known, in which it had work.")
      .no_alert("the shard's stalls count them");
}

}  // namespace bedplate
