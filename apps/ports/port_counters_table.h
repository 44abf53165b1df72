// What the counters of a port are called (apps/boot/counter_table.h).
#pragma once

#include "apps/boot/counter_table.h"
#include "transport/dpdk/net/net_counters.h"
#include "transport/dpdk/port/port_counters.h"

namespace bedplate {

// Of EAL, once.
struct EalCounters {
  Counter heap_bytes;
  Counter heap_used_bytes;
};

void describe(CounterTable& table, EalCounters& counters);
void describe(CounterTable& table, PortCounters& counters);
void describe(CounterTable& table, PortQueueCounters& counters);
void describe(CounterTable& table, NetCounters& counters);

}  // namespace bedplate
