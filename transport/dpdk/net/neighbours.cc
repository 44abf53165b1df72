#include <bit>

#include "platform/assert.h"
#include "transport/dpdk/net/neighbours_datapath.h"

namespace bedplate {

Neighbours::Neighbours(NeighbourAsker& asker, const Limits& limits)
    : asker_(asker),
      count_max_(limits.entry_count),
      chain_mask_(std::bit_ceil(limits.entry_count) - 1),
      entries_(std::make_unique<Neighbour[]>(limits.entry_count)),
      chains_(std::make_unique<uint32_t[]>(chain_mask_ + 1)),
      waiting_(limits.waiting_count),
      given_up_(std::make_unique<rte_mbuf*[]>(limits.waiting_count)) {
  BP_ASSERT(limits.entry_count > 0);
  for (uint32_t i = 0; i <= chain_mask_; ++i) chains_[i] = kNone;
}

bool Neighbours::is_valid() const noexcept {
  if (!waiting_.is_valid()) return false;
  uint32_t used_count = 0;
  uint32_t waiting_count = 0;
  for (uint32_t i = 0; i < count_max_; ++i) {
    const Neighbour& entry = entries_[i];
    waiting_count += entry.waiting_count;
    if (entry.waiting_count > 0 && entry.state != Neighbour::State::kIncomplete) return false;
    if (entry.state == Neighbour::State::kUnused) continue;
    ++used_count;
    if (entry.waiting_count > 0 && waiting_.count_of(i) != entry.waiting_count) return false;
    if (find(entry.address) != &entry) return false;
    if (is_timed(entry) && entry.deadline_ns < next_deadline_ns_) return false;
  }
  if (waiting_count != waiting_.count()) return false;
  uint32_t chained_count = 0;
  for (uint32_t i = 0; i <= chain_mask_; ++i) {
    for (uint32_t at = chains_[i]; at != kNone; at = entries_[at].next) {
      if (at >= count_max_ || ++chained_count > used_count) return false;
    }
  }
  return chained_count == used_count;
}

}  // namespace bedplate
