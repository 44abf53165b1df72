#include "transport/verbs/channel/queue_pair_drain.h"

#include "platform/clock.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// Receives under way when a queue pair fails get kDrainNsMin to arrive; the peer sends later ones
// again. The wait for a device that never flushes its requests ends after kDrainNsMax.
constexpr uint64_t kDrainNsMin = 2 * kNsPerMs;
constexpr uint64_t kDrainNsMax = kNsPerSecond;

}  // namespace

void QueuePairDrain::begin() noexcept {
  BP_DCHECK(!channel_.is_live && !channel_.may_send && !channel_.is_draining);
  channel_.is_draining = true;
  ++parts_.draining_count;
  must_fail_ = true;
  if (!channel_.link.is_connecting.load(std::memory_order_acquire)) fail(monotonic_ns());
}

void QueuePairDrain::fail(uint64_t now_ns) noexcept {
  BP_DCHECK(channel_.is_draining && must_fail_ && channel_.queue.room() > 0);
  BP_DCHECK(!channel_.link.is_connecting.load(std::memory_order_relaxed));
  must_fail_ = false;
  channel_.link.queue_pair.fail();
  // The marker comes back after all other requests: its completion means that they have ended.
  channel_.queue.add(IBV_WR_SEND, {.kind = RequestKind::kMarker});
  channel_.queue.post();
  done_ns_min_ = now_ns + kDrainNsMin;
  done_ns_max_ = now_ns + kDrainNsMax;
}

// A reset would lose the shared queue's receives that the queue pair still holds. Some devices
// report when it holds none: on these the drain waits for the report.
bool QueuePairDrain::is_done(uint64_t now_ns) noexcept {
  BP_DCHECK(parts_.is_own_thread() && channel_.is_draining && !channel_.is_live);
  if (parts_.is_lost) return true;
  if (must_fail_) {
    if (channel_.link.is_connecting.load(std::memory_order_acquire)) return false;
    fail(now_ns);
  }
  if (now_ns >= done_ns_max_) return true;
  const bool has_receives = parts_.device->tells_last_receive() &&
                            !channel_.link.has_last_receive.load(std::memory_order_acquire);
  return now_ns >= done_ns_min_ && channel_.queue.is_idle() && !has_receives;
}

Result<void> QueuePairDrain::end() noexcept {
  BP_DCHECK(parts_.is_own_thread() && channel_.is_draining && !channel_.is_live);
  BP_DCHECK(parts_.draining_count > 0 && parts_.draining_count <= parts_.shape.peer_count_max);
  channel_.is_draining = false;
  --parts_.draining_count;
  return channel_.link.queue_pair.reset();
}

}  // namespace bedplate
