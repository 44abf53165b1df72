#include "transport/dpdk/net/looped_frames_datapath.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate {

LoopedFrames::~LoopedFrames() {
  for (uint32_t i = 0; i < count_; ++i) rte_pktmbuf_free(frames_[i]);
}

void LoopedFrames::push(rte_mbuf* frame) noexcept {
  BP_DCHECK(rte_mbuf_refcnt_read(frame) > 0);
  if (count_ == kCountMax) {
    rte_pktmbuf_free(frame);
    counters_.drop(PacketDrop::kQueueFull);
    return;
  }
  frames_[count_++] = frame;
  counters_.looped_frames.add(1);
}

uint32_t LoopedFrames::take(std::span<rte_mbuf*> frames) noexcept {
  BP_DCHECK(count_ <= kCountMax);
  const uint32_t count = std::min(count_, static_cast<uint32_t>(frames.size()));
  std::copy_n(frames_, count, frames.data());
  std::copy(frames_ + count, frames_ + count_, frames_);
  count_ -= count;
  return count;
}

}  // namespace bedplate
