#include <bit>

#include "platform/assert.h"
#include "transport/dpdk/net/neighbours_datapath.h"

namespace bedplate {

Neighbours::Neighbours(NeighbourAsker& asker, uint32_t entry_count_max)
    : asker_(asker),
      count_max_(entry_count_max),
      chain_mask_(std::bit_ceil(entry_count_max) - 1),
      entries_(std::make_unique<Neighbour[]>(entry_count_max)),
      chains_(std::make_unique<uint32_t[]>(chain_mask_ + 1)) {
  BP_ASSERT(entry_count_max > 0);
  for (uint32_t i = 0; i <= chain_mask_; ++i) chains_[i] = kNone;
}

Neighbours::~Neighbours() {
  for (uint32_t i = 0; i < count_max_; ++i) {
    for (uint32_t k = 0; k < entries_[i].waiting_count; ++k) {
      rte_pktmbuf_free(entries_[i].waiting[k]);
    }
  }
}

bool Neighbours::is_valid() const noexcept {
  uint32_t used_count = 0;
  for (uint32_t i = 0; i < count_max_; ++i) {
    const Neighbour& entry = entries_[i];
    if (entry.waiting_count > Neighbour::kWaitingMax) return false;
    if (entry.waiting_count > 0 && entry.state != Neighbour::State::kIncomplete) return false;
    if (entry.state == Neighbour::State::kUnused) continue;
    ++used_count;
    if (find(entry.address) != &entry) return false;
    if (is_timed(entry) && entry.deadline_ns < next_deadline_ns_) return false;
  }
  uint32_t chained_count = 0;
  for (uint32_t i = 0; i <= chain_mask_; ++i) {
    for (uint32_t at = chains_[i]; at != kNone; at = entries_[at].next) {
      if (at >= count_max_ || ++chained_count > used_count) return false;
    }
  }
  return chained_count == used_count;
}

}  // namespace bedplate
