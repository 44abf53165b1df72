#include "transport/loop/request_limit_datapath.h"

namespace bedplate {

RequestLimit::RequestLimit(EventLoop& loop, LimitCounters& counters,
                           void (*let_go)(void* context, RateWaiter& waiter) noexcept,
                           void* context) noexcept
    : loop_(loop), counters_(counters) {
  reads_.create(loop, counters.reads, let_go, context);
  writes_.create(loop, counters.writes, let_go, context);
  set({});
}

void RequestLimit::set(const LimitRates& rates) noexcept {
  rates_ = rates;
  counters_.burst_ns.set(rates.burst_ms * kNsPerMs);
  reads_.set(rates.reads());
  writes_.set(rates.writes());
}

}  // namespace bedplate
