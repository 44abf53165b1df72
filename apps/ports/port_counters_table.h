// The names of a port's counters, with their units and meanings, as a table of
// platform/counter_table.h. A description only points to what it describes: `counters` may lie
// anywhere, and is not read. Threads: any; the counters' writers go on meanwhile.
#pragma once

#include "platform/counter_table.h"
#include "transport/dpdk/net/net_counters.h"
#include "transport/dpdk/port/port_counters.h"

namespace bedplate {

// The counters of EAL, one set for the process.
struct EalCounters {
  Counter heap_bytes;       // given to DPDK
  Counter heap_used_bytes;  // of it
};

void describe(CounterTable& table, EalCounters& counters);
void describe(CounterTable& table, PortCounters& counters);
void describe(CounterTable& table, PortQueueCounters& counters);
void describe(CounterTable& table, NetCounters& counters);

}  // namespace bedplate
