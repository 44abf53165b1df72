#include "transport/shm/endpoint/shm_counters.h"

#include "platform/counter_table.h"

namespace bedplate {

void describe(CounterTable& table, ShmCounters& c) {
  table.counter("received", c.received, "messages", "Received messages.");
  table.counter("unhandled", c.unhandled, "messages", "Received messages without a handler.")
      .alert_as_it_grows(
          "{unhandled} messages found no handler so far: their senders must be of a build that "
          "agrees with this one");
  table
      .counter("abandoned", c.abandoned, "slots",
               "Slots that a member claimed and did not publish in time.")
      .alert_as_it_grows(
          "{abandoned} messages were begun and not finished so far: look for a member that died "
          "or was stopped during a send");
  table
      .counter("cut_off", c.cut_off, "members",
               "Members cut off because they violated the protocol.")
      .alert_as_it_grows(
          "{cut_off} members violated the protocol and were cut off so far: the log names them; "
          "correct that program, then restart it");
  table
      .counter("memory_waits", c.memory_waits, "polls",
               "Polls that stopped at a message of a new sender because memory was short.")
      .alert_as_it_grows(
          "messages of new senders waited {memory_waits} times for memory so far: raise [pool] "
          "bytes, or have fewer members");
  table.counter("boxes_granted", c.boxes_granted, "boxes", "Fast boxes given to busy senders.");
  table.counter("boxes_returned", c.boxes_returned, "boxes",
                "Fast boxes taken back from idle ones.");
}

}  // namespace bedplate
