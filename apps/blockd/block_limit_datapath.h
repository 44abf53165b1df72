// The limit of one volume, tenant (a group of volumes) or listener: operations and bytes a second,
// for reads and for writes.
//
//     admit(request, of_listener):  a new request, before its volume's shard gets it
//       of_listener                 a limit lets it pass, or keeps it in its queue,
//       its volume's limit            and lets it go on to the next when its turn comes
//       the limit of its volume's tenant
//       the volume's lane           it is submitted
//
// All requests of a connection have the same limits, and each limit keeps their order: so reads
// reach the volume in the order of their arrival, and writes do. A read may overtake a write that
// waits, as NBD allows; a listener whose requests wait delays no other listener of the volume.
//
// READ and BLOCK_STATUS count as reads, all other requests as writes. The bytes are those of the
// payloads, as in RequestCounters: FLUSH, TRIM, WRITE_ZEROES and BLOCK_STATUS have none.
//
// Threads: the shard of the connections. Nothing is allocated.
#pragma once

#include <cstdint>

#include "apps/blockd/block_request.h"
#include "apps/blockd/limit_counters.h"
#include "platform/units.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/rate_limit_datapath.h"

namespace bedplate {

enum class LimitKind : uint8_t { kVolume, kTenant, kListener };

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

class BlockLimit {
 public:
  // Requires: `loop` is that of the connections, and has two timers for it. Ownership: both outlive
  // this object.
  BlockLimit(LimitKind kind, EventLoop& loop, LimitCounters& counters) noexcept;

  // Hands a new request to its volume, now or when its limits allow. `of_listener`: nullptr: the
  // listener of its client has no limit.
  static void admit(BlockRequest& request, BlockLimit* of_listener) noexcept;

  // Changes the rates (RateLimit::set), and submits requests that may go now.
  void set(const LimitRates& rates) noexcept;
  const LimitRates& rates() const noexcept { return rates_; }
  LimitKind kind() const noexcept { return kind_; }
  uint64_t reads_waiting() const noexcept { return counters_.reads.waiting.read(); }
  uint64_t writes_waiting() const noexcept { return counters_.writes.waiting.read(); }

  // Takes the requests of a connection out of the queues, and calls `removed(request)` for each.
  template <typename Removed>
  void remove(const nbd::Connection& connection, Removed&& removed) noexcept {
    const auto is_its = [&connection](const RateWaiter& each) {
      return static_cast<const BlockRequest&>(each).connection == &connection;
    };
    for (RateLimit* limit : {&reads_, &writes_}) {
      if (!limit->has_waiting()) continue;
      for (auto all = limit->remove(is_its); !all.is_empty();) {
        removed(static_cast<BlockRequest&>(all.pop()));
      }
    }
  }

 private:
  static void let_go(void* self, RateWaiter& waiter) noexcept;
  static void go_on(BlockRequest& request, LimitKind passed) noexcept;
  bool try_pass(BlockRequest& request) noexcept;

  const LimitKind kind_;
  const EventLoop& loop_;
  LimitCounters& counters_;
  LimitRates rates_;
  RateLimit reads_;
  RateLimit writes_;
};

}  // namespace bedplate
