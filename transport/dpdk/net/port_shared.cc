#include <new>

#include <rte_ring.h>

#include "platform/assert.h"
#include "transport/dpdk/net/port_shared_datapath.h"

namespace bedplate {

PortShared::PortShared(const Options& options)
    : options_(options), owners_(std::make_unique<std::atomic<uint32_t>[]>(kBucketCount)) {
  BP_ASSERT(options.queue_count > 0 && options.queue_count <= kQueueCountMax);
  const ssize_t wanted = rte_ring_get_memsize_elem(sizeof(Handed), options.ring_frame_count);
  BP_ASSERT(wanted > 0 && "it is a power of two");
  const size_t bytes =
      (static_cast<size_t>(wanted) + RTE_CACHE_LINE_SIZE - 1) & ~size_t{RTE_CACHE_LINE_SIZE - 1};
  ring_memory_ = std::make_unique<std::byte[]>(bytes * options.queue_count + RTE_CACHE_LINE_SIZE);
  const auto start = reinterpret_cast<uintptr_t>(ring_memory_.get());
  auto* at = ring_memory_.get() + (RTE_CACHE_LINE_SIZE - start % RTE_CACHE_LINE_SIZE);
  for (uint32_t i = 0; i < options.queue_count; ++i, at += bytes) {
    rings_[i] = reinterpret_cast<rte_ring*>(at);
    const int outcome =
        rte_ring_init(rings_[i], "handed-over", options.ring_frame_count, RING_F_SC_DEQ);
    BP_ASSERT(outcome == 0);
  }
}

PortShared::~PortShared() {
  for (uint32_t i = 0; i < options_.queue_count; ++i) {
    Handed one;
    while (take(i, {&one, 1}) == 1) rte_pktmbuf_free(one.frame);
  }
}

}  // namespace bedplate
