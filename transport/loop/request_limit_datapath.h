// A limit of requests: operations and bytes a second, for reads and for writes, each with its own
// budget and queue (rate_limit_datapath.h).
//
// Its user says which requests are reads, how many bytes each has, and where a request goes on when
// its turn comes. Threads: the loop's. Nothing is allocated.
#pragma once

#include <cstdint>

#include "platform/units.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/limit_counters.h"
#include "transport/loop/rate_limit_datapath.h"

namespace bedplate {

// 0: no limit.
struct LimitRates {
  uint64_t read_rate = 0;
  uint64_t read_rate_bytes = 0;
  uint64_t write_rate = 0;
  uint64_t write_rate_bytes = 0;
  uint64_t burst_ms = 100;

  Rates reads() const noexcept { return {read_rate, read_rate_bytes, burst_ms * kNsPerMs}; }
  Rates writes() const noexcept { return {write_rate, write_rate_bytes, burst_ms * kNsPerMs}; }
  bool are_limited() const noexcept { return reads().is_limited() || writes().is_limited(); }
};

class RequestLimit {
 public:
  static constexpr uint32_t kTimerCount = 2;  // on the loop

  // It has no rates yet. `let_go`: that of RateLimit::create. Requires: the loop has kTimerCount
  // timers of a service for it. Ownership: all outlive this object.
  RequestLimit(EventLoop& loop, LimitCounters& counters,
               void (*let_go)(void* context, RateWaiter& waiter) noexcept, void* context) noexcept;

  // Changes the rates (RateLimit::set), and lets requests go that may go now.
  void set(const LimitRates& rates) noexcept;
  const LimitRates& rates() const noexcept { return rates_; }

  RateLimit& reads() noexcept { return reads_; }
  RateLimit& writes() noexcept { return writes_; }
  uint64_t reads_waiting() const noexcept { return counters_.reads.waiting.read(); }
  uint64_t writes_waiting() const noexcept { return counters_.writes.waiting.read(); }
  EventLoop& loop() const noexcept { return loop_; }
  // Whether there is a rate, or there was one a moment ago. Threads: any.
  bool is_on() const noexcept {
    const auto has_rate = [](const RateLimitCounters& counters) {
      return (counters.operations_per_second.read() | counters.bytes_per_second.read()) != 0;
    };
    return has_rate(counters_.reads) || has_rate(counters_.writes);
  }

  // Takes those for which `is_meant(waiter)` is true out of the queues, and calls `removed(waiter)`
  // for each.
  template <typename IsMeant, typename Removed>
  void remove(IsMeant&& is_meant, Removed&& removed) noexcept {
    for (RateLimit* limit : {&reads_, &writes_}) {
      if (!limit->has_waiting()) continue;
      for (auto all = limit->remove(is_meant); !all.is_empty();) removed(all.pop());
    }
  }

 private:
  EventLoop& loop_;
  LimitCounters& counters_;
  LimitRates rates_;
  RateLimit reads_;
  RateLimit writes_;
};

}  // namespace bedplate
