// The counters of a limit of reads and writes (request_limit_datapath.h). Threads: the loop's
// writes, any thread or process reads.
#pragma once

#include "platform/cache_line.h"
#include "platform/counter_table.h"
#include "transport/loop/rate_limit_datapath.h"

namespace bedplate {

struct alignas(kCacheLineBytes) LimitCounters {
  RateLimitCounters reads;
  RateLimitCounters writes;
  Counter burst_ns;
};

inline void describe(CounterTable& table, LimitCounters& c) {
  table.gauge("read_rate", c.reads.operations_per_second, "requests",
              "The most reads in a second; 0: any number.");
  table.gauge("read_rate_bytes", c.reads.bytes_per_second, "bytes",
              "The most bytes read in a second; 0: any number.");
  table.gauge("reads_waiting", c.reads.waiting, "requests", "Reads that wait for this limit.");
  table.histogram("read_wait_ns", c.reads.wait_ns, "ns",
                  "How long reads waited for this limit; a read that went on at once is left out.");
  table.gauge("write_rate", c.writes.operations_per_second, "requests",
              "The most writes, and other requests that are no reads, in a second; 0: any "
              "number.");
  table.gauge("write_rate_bytes", c.writes.bytes_per_second, "bytes",
              "The most bytes written in a second; 0: any number.");
  table.gauge("writes_waiting", c.writes.waiting, "requests",
              "Writes and the like that wait for this limit.");
  table.histogram("write_wait_ns", c.writes.wait_ns, "ns",
                  "How long writes and the like waited for this limit.");
  table.gauge("burst_ns", c.burst_ns, "ns",
              "After a pause, requests of this much time may go on at once.");
}

}  // namespace bedplate
