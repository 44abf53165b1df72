// The counters of a member of a group, written by the shard that polls.
#pragma once

#include "platform/counter.h"

namespace bedplate {

class CounterTable;

struct ShmCounters {
  Counter received;
  Counter unhandled;     // messages that no handler was set for
  Counter abandoned;     // slots that a member claimed and did not publish in time
  Counter cut_off;       // members that wrote nonsense
  Counter memory_waits;  // polls that stopped at a message of somebody new for want of memory
  Counter boxes_granted;
  Counter boxes_returned;
};

void describe(CounterTable& table, ShmCounters& counters);

}  // namespace bedplate
