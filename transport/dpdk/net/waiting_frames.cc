#include "platform/assert.h"
#include "transport/dpdk/net/waiting_frames_datapath.h"

namespace bedplate {

WaitingFrames::WaitingFrames(uint32_t count_max)
    : count_max_(count_max), waiting_(std::make_unique<Waiting[]>(count_max)) {
  BP_ASSERT(count_max > 0);
}

WaitingFrames::~WaitingFrames() {
  for (uint32_t i = 0; i < count_; ++i) rte_pktmbuf_free(waiting_[index_of(i)].frame);
}

bool WaitingFrames::is_valid() const noexcept {
  if (oldest_ >= count_max_ || count_ > count_max_) return false;
  for (uint32_t i = 0; i < count_max_; ++i) {
    if ((waiting_[index_of(i)].frame != nullptr) != (i < count_)) return false;
  }
  return true;
}

}  // namespace bedplate
