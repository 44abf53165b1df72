#include "transport/loop/loop_counters.h"

#include "platform/counter_table.h"

namespace bedplate {

void describe(CounterTable& table, EventLoopCounters& c) {
  table.counter("iterations", c.iterations, "rounds", "Rounds of the event loop.")
      .sign_as_it_stands("asleep", "it is neither asleep nor going on: something keeps it");
  table.counter("sleeps", c.sleeps, "sleeps", "How often it slept.");
  table.counter(
      "busy_ns", c.busy_ns, "ns",
      "Time in which anything had work, and in which the kernel worked for it as it slept.");
  table.counter("spin_ns", c.spin_ns, "ns",
                "Time in which it looked for work and found none. The rest it slept.");
  table.boolean("asleep", c.is_asleep, "It sleeps now.");
  table.counter("calls", c.calls, "calls", "Calls that other threads had it make.");
  table
      .counter("stalls", c.stalled.stalls, "stalls",
               "How often something kept it for longer than stall_ms.")
      .sign_as_it_grows("something keeps it for too long, {stall_longest_ns} at most");
  table.gauge("stall_longest_ns", c.stalled.longest_ns, "ns", "The longest of these.")
      .no_sign("stalls has it in its words");
  table
      .counter("call_stalls", c.call_stalls, "stalls",
               "Stalls that a call from another thread had a part in.")
      .no_sign("stalls has them");
  table.counter("timer_stalls", c.timer_stalls, "stalls", "Stalls that a timer had a part in.")
      .no_sign("stalls has them");
  table.counter("preemptions", c.stalled.preemptions, "times",
                "How often it waited for its core, which ran something else, for so long.");
  table.counter(
      "standstills", c.stalled.standstills, "times",
      "How often the whole process stood still for so long: stopped, frozen or throttled.");
}

void describe_rounds(CounterTable& table, EventLoopCounters& c) {
  table.histogram("round_ns", c.round, "ns", "A round with work, of every 16th such round.");
}

void describe(CounterTable& table, SourceCounters& c) {
  table.histogram("round_ns", c.round, "ns",
                  "Its share of a round in which it has work, of every 16th such round.");
  table
      .counter("stalls", c.stalls, "stalls",
               "Stalls of the shard that it had a part in: it took so long or, where that is not "
               "known, had work.")
      .no_sign("those of the shard have them");
}

}  // namespace bedplate
