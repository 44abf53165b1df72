// The counters of a member of a group; the polling shard writes them.
#pragma once

#include "platform/counter.h"

namespace bedplate {

class CounterTable;

struct ShmCounters {
  Counter received;
  Counter unhandled;     // messages without a handler
  Counter abandoned;     // slots that a member claimed and did not publish in time
  Counter cut_off;       // members that wrote something malformed
  Counter memory_waits;  // polls that stopped at a new member's message because memory ran out
  Counter boxes_granted;
  Counter boxes_returned;
};

void describe(CounterTable& table, ShmCounters& counters);

}  // namespace bedplate
