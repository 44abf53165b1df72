// The counters of EAL: one set for the process. The main thread writes it.
#pragma once

#include "platform/counter_table.h"

namespace bedplate {

struct EalCounters {
  Counter heap_bytes;       // given to DPDK
  Counter heap_used_bytes;  // the used part of heap_bytes
};

inline void describe(CounterTable& table, EalCounters& c) {
  table.gauge("heap_bytes", c.heap_bytes, "bytes", "The heap of DPDK, in the pool.");
  table.gauge("heap_used_bytes", c.heap_used_bytes, "bytes", "The used part of it.");
}

}  // namespace bedplate
