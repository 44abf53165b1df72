#include "transport/shm/endpoint/shm_counters.h"

#include "platform/counter_table.h"

namespace bedplate {

void describe(CounterTable& table, ShmCounters& c) {
  table.counter("received", c.received, "messages", "Received messages.");
  table.counter("unhandled", c.unhandled, "messages", "Received messages without a handler.")
      .sign_as_it_grows(
          "messages come that nothing here handles, {unhandled} by now: have their senders be of "
          "a build that agrees with this one");
  table
      .counter("abandoned", c.abandoned, "slots",
               "Slots that a member claimed and did not publish in time.")
      .sign_as_it_grows(
          "members begin messages and do not end them, {abandoned} by now: look for one that died "
          "or was stopped in the middle");
  table
      .counter("cut_off", c.cut_off, "members",
               "Members cut off because they violated the protocol.")
      .sign_as_it_grows(
          "members that wrote nonsense are cut off, {cut_off} by now: the log names them; mend "
          "that program, then start it again");
  table
      .counter("memory_waits", c.memory_waits, "polls",
               "Polls that stopped at a message of a new sender because memory was short.")
      .sign_as_it_grows(
          "newcomers' messages wait for memory, {memory_waits} times by now: have a larger [pool] "
          "bytes, or fewer members");
  table.counter("boxes_granted", c.boxes_granted, "boxes", "Fast boxes given to busy senders.");
  table.counter("boxes_returned", c.boxes_returned, "boxes",
                "Fast boxes taken back from idle ones.");
}

}  // namespace bedplate
