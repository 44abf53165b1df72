#include "transport/dpdk/net/other_shards_datapath.h"

#include <bit>

namespace bedplate {

void OtherShards::hand_over(rte_mbuf* frame, uint32_t queues, bool is_own) noexcept {
  BP_ASSERT((queues & 1U << queue_index_) == 0);
  for (; queues != 0; queues &= queues - 1) {
    rte_pktmbuf_refcnt_update(frame, 1);
    const auto queue = static_cast<uint32_t>(std::countr_zero(queues));
    if (shared_->hand_over(queue, {frame, is_own})) {
      counters_.handed_frames.add(1);
    } else {
      rte_pktmbuf_free(frame);
      counters_.drop(PacketDrop::kQueueFull);
    }
  }
}

void OtherShards::hand_to_all(rte_mbuf* frame, uint64_t now_ns) noexcept {
  if (shared_ == nullptr || shared_->queue_count() == 1) return;
  BP_DCHECK(queue_index_ < shared_->queue_count());
  if (!control_.try_take(now_ns)) {
    counters_.drop(PacketDrop::kRateLimited);
    return;
  }
  const uint32_t all = ~uint32_t{0} >> (32 - shared_->queue_count());
  hand_over(frame, all & ~(1U << queue_index_), false);
}

}  // namespace bedplate
