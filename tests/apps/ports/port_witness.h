// Observes the frames that port drivers receive and send, with DPDK's callbacks for each burst.
// Checks whether a datagram's payload is sent from the address it was received at. For
// tests/system/port_echo.cc.
#pragma once

#include "platform/counter_table.h"

namespace bedplate::test {

struct WitnessCounters {
  Counter sent_in_place;
  Counter sent_elsewhere;
};

inline void describe(CounterTable& table, WitnessCounters& c) {
  table.counter("sent_in_place", c.sent_in_place, "datagrams", "From where they came in.");
  table.counter("sent_elsewhere", c.sent_elsewhere, "datagrams", "From anywhere else.");
}

// Watches all existing ports from now on. Datagrams begin with a number of 4 bytes.
// Requires: called once, before loops run; only one loop has ports. `counters` outlives them.
void witness_ports(WitnessCounters& counters);

}  // namespace bedplate::test
