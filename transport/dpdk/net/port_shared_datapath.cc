#include "transport/dpdk/net/port_shared_datapath.h"

#include <rte_ring.h>

#include "platform/assert.h"

namespace bedplate {

void PortShared::set_owner(uint32_t bucket, uint32_t queue_index, bool is_owner) noexcept {
  BP_ASSERT(bucket < kBucketCount && queue_index < options_.queue_count);
  const uint32_t bit = 1U << queue_index;
  if (is_owner) {
    owners_[bucket].fetch_or(bit, std::memory_order_acq_rel);
  } else {
    owners_[bucket].fetch_and(~bit, std::memory_order_acq_rel);
  }
}

bool PortShared::hand_over(uint32_t queue_index, const Handed& handed) noexcept {
  BP_ASSERT(queue_index < options_.queue_count && handed.frame != nullptr);
  BP_DCHECK(rte_mbuf_refcnt_read(handed.frame) > 0);
  auto one = handed;
  if (rte_ring_mp_enqueue_elem(rings_[queue_index], &one, sizeof one) != 0) return false;
  if (options_.wake != nullptr) options_.wake(options_.context, queue_index);
  return true;
}

uint32_t PortShared::take(uint32_t queue_index, std::span<Handed> handed) noexcept {
  BP_ASSERT(queue_index < options_.queue_count);
  return rte_ring_sc_dequeue_burst_elem(rings_[queue_index], handed.data(), sizeof(Handed),
                                        static_cast<unsigned>(handed.size()), nullptr);
}

bool PortShared::has_frames(uint32_t queue_index) const noexcept {
  BP_DCHECK(queue_index < options_.queue_count);
  return rte_ring_empty(rings_[queue_index]) == 0;
}

}  // namespace bedplate
