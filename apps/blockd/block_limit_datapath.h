// The limit of one volume, tenant (a group of volumes) or listener: operations and bytes a second,
// for reads and for writes.
//
//     admit(request, of_listener):  a new request, before its volume's shard gets it
//       of_listener                 a limit lets it pass, or keeps it in its queue,
//       its volume's limit            and lets it go on to the next when its turn comes
//       the limit of its volume's tenant
//       Volume::behind_limits       it is submitted, or goes back to the shard of its connection
//
// All requests of a connection have the same limits, and each limit keeps their order: so reads
// reach the volume in the order of their arrival, and writes do. A read may overtake a write that
// waits, as NBD allows; a listener whose requests wait delays no other listener of the volume.
//
// READ and BLOCK_STATUS count as reads, all other requests as writes. The bytes are those of the
// payloads, as in RequestCounters: FLUSH, TRIM, WRITE_ZEROES and BLOCK_STATUS have none.
//
// Threads: the shard of the limits, the first one of connections. Nothing is allocated.
#pragma once

#include <cstdint>

#include "apps/blockd/block_request.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/limit_counters.h"
#include "transport/loop/request_limit_datapath.h"

namespace bedplate {

enum class LimitKind : uint8_t { kVolume, kTenant, kListener };

class BlockLimit : public RequestLimit {
 public:
  // Requires: `loop` is that of the limits, and has RequestLimit::kTimerCount timers for it.
  // Ownership: both outlive this object.
  BlockLimit(LimitKind kind, EventLoop& loop, LimitCounters& counters) noexcept
      : RequestLimit(loop, counters, &BlockLimit::let_go, this), kind_(kind) {}

  // Hands a new request to its volume, now or when its limits allow. `of_listener`: nullptr: the
  // listener of its client has no limit.
  static void admit(BlockRequest& request, BlockLimit* of_listener) noexcept;

  // Takes the requests for which `is_meant(request)` is true out of the queues, and calls
  // `removed(request)` for each.
  template <typename IsMeant, typename Removed>
  void remove(IsMeant&& is_meant, Removed&& removed) noexcept {
    RequestLimit::remove(
        [&is_meant](const RateWaiter& each) {
          return is_meant(static_cast<const BlockRequest&>(each));
        },
        [&removed](RateWaiter& each) { removed(static_cast<BlockRequest&>(each)); });
  }

 private:
  static void let_go(void* self, RateWaiter& waiter) noexcept;
  static void go_on(BlockRequest& request, LimitKind passed) noexcept;
  bool try_pass(BlockRequest& request) noexcept;

  const LimitKind kind_;
};

}  // namespace bedplate
