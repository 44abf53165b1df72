// The counters of volumes and their stores; nbd_counters.h has those of connections. Threads: only
// the shard that is named at each struct writes; any thread or process reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/blockd/nbd_counters.h"
#include "platform/cache_line.h"
#include "platform/counter.h"
#include "platform/counter_table.h"
#include "platform/histogram.h"
#include "platform/units.h"

namespace bedplate {

// One volume as its clients see it. The shard of the connections writes it; if there are several,
// each has its own, and the main thread writes their sum (add_up).
struct alignas(kCacheLineBytes) VolumeRequestCounters : nbd::RequestCounters {
  Counter requests_in_flight;
  Histogram request_ns;  // as in nbd::ConnectionCounters, for all kinds together
};

// One volume. Its shard writes all but `requests`.
struct alignas(kCacheLineBytes) VolumeCounters {
  Counter grants;   // destinations granted to writes that are received in place
  Counter commits;  // writes whose payload arrived whole
  Counter aborts;   // writes whose client left before the payload was complete
  VolumeRequestCounters requests;
};

// One volume on a store that is not memory. Its shard writes all but silent_ns.
struct alignas(kCacheLineBytes) StoreCounters {
  Counter operations;        // begun and not ended; some wait for an earlier write
  Counter operations_peak;   // the most in progress at once
  Counter operations_max;    // the limit
  Counter requests_waiting;  // for an operation to end, or for a buffer
  Counter buffer_bytes;      // in use
  Counter buffer_peak_bytes;
  Counter buffer_max_bytes;
  Counter errors;
  Counter has_failed_flush;
  Counter operations_ended;
  Counter silent_ns;  // written by the main thread (StoreSilence)
};

// Writes the sum of part(0) to part(count - 1) into `sum`. Readers may see a sum that is a moment
// old, and values of different moments.
template <typename Part>
void add_up(uint32_t count, Part&& part, VolumeRequestCounters& sum) noexcept {
  // They consist of counters alone, as a counters file has them.
  constexpr size_t kValueCount = sizeof(VolumeRequestCounters) / sizeof(Counter);
  static_assert(kValueCount * sizeof(Counter) == sizeof(VolumeRequestCounters));
  auto* const values = reinterpret_cast<Counter*>(&sum);
  for (size_t i = 0; i < kValueCount; ++i) {
    uint64_t total = 0;
    for (uint32_t k = 0; k < count; ++k) {
      total += reinterpret_cast<const Counter*>(&part(k))[i].read();
    }
    values[i].set(total);
  }
}

inline void describe(CounterTable& table, VolumeRequestCounters& c) {
  nbd::describe_requests(table, c, {"operations", "bytes", "bytes"});
  table
      .histogram(
          "request_ns", c.request_ns, "ns",
          "The time of any request, from receipt of its header until its answer is handed to "
          "the socket.")
      .at_a_glance("p99");
  table
      .gauge("requests_in_flight", c.requests_in_flight, "requests",
             "Requests received and not completely answered yet.")
      .at_a_glance("queue");
}

inline void describe(CounterTable& table, VolumeCounters& c) {
  table.counter("grants", c.grants, "requests",
                "Destinations granted to writes whose payload is received in place.");
  table.counter("commits", c.commits, "requests", "Writes whose payload has arrived completely.");
  table
      .counter("aborts", c.aborts, "requests",
               "Writes whose client left before the payload had arrived.")
      .no_alert("broken_connections counts their clients");
  describe(table, c.requests);
}

inline void describe(CounterTable& table, StoreCounters& c) {
  table.gauge("operations", c.operations, "operations",
              "Operations in the store, or waiting for an earlier write.");
  table
      .gauge("operations_peak", c.operations_peak, "operations",
             "The most operations at once, in the store or waiting for an earlier write.")
      .peak_of("volume.operations", "Further requests wait for an operation to end.");
  table.gauge("operations_max", c.operations_max, "operations",
              "The limit of operations at once; further requests wait.");
  table.gauge("requests_waiting", c.requests_waiting, "requests",
              "Requests that wait for an operation of the store, or for a buffer.");
  table.gauge("buffer_bytes", c.buffer_bytes, "bytes", "Used memory of its buffers.");
  table
      .gauge("buffer_peak_bytes", c.buffer_peak_bytes, "bytes",
             "The peak of used memory of its buffers.")
      .peak_of("volume.buffer_bytes", "Requests wait for a buffer, large ones longest.");
  table.gauge("buffer_max_bytes", c.buffer_max_bytes, "bytes",
              "All memory of its buffers; requests that find none free wait.");
  table.counter("errors", c.errors, "requests", "Requests that failed in the store.")
      .alert_as_it_grows("its store {place} failed {errors} requests so far");
  table.counter("operations_ended", c.operations_ended, "operations",
                "Operations completed by the store.");
  table
      .gauge("silent_ns", c.silent_ns, "ns",
             "How long the store has completed no operation while it has some, else 0; measured "
             "twice a second.")
      .alert_from(5 * kNsPerSecond,
                  "its store {place} has completed nothing for {silent_ns} (operations in "
                  "flight: {operations})");
  table
      .boolean("has_failed_flush", c.has_failed_flush,
               "A flush has failed: FLUSH and FUA answer EIO until the volume is reopened.")
      .alert_from(
          1, "a flush of {place} has failed, so written data may be lost: check the drive, then "
             "reopen the volume");
}

}  // namespace bedplate
