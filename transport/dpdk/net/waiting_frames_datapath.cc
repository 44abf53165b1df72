#include "transport/dpdk/net/waiting_frames_datapath.h"

namespace bedplate {

uint32_t WaitingFrames::count_of(uint32_t neighbour) const noexcept {
  uint32_t found_count = 0;
  for (uint32_t i = 0; i < count_; ++i) found_count += waiting_[index_of(i)].neighbour == neighbour;
  return found_count;
}

WaitingFrames::Waiting WaitingFrames::push(uint32_t neighbour, rte_mbuf* frame) noexcept {
  BP_DCHECK(frame != nullptr);
  Waiting pushed_out;
  if (count_ == count_max_) {
    pushed_out = waiting_[oldest_];
    waiting_[oldest_] = {};
    oldest_ = index_of(1);
    --count_;
  }
  waiting_[index_of(count_++)] = {frame, neighbour};
  BP_DCHECK_SLOW(is_valid());
  return pushed_out;
}

}  // namespace bedplate
