// All I/O queue pairs of a drive, as its control sees them: one wish for all of them, which their
// shards follow (nvme_queue_pair_datapath.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "platform/assert.h"
#include "transport/nvme/nvme_queue_pair_datapath.h"

namespace bedplate {

// The memory of a queue pair: NvmeQueuePair::bytes_for(NvmeOptions::queue_entries), zeroed, aligned
// to a page.
struct NvmeQueuePlace {
  std::span<std::byte> memory;
  NvmeQueueCounters* counters = nullptr;
};

// Threads: the control's.
class NvmeQueuePairs {
 public:
  using Phase = NvmeQueuePair::Phase;

  // Makes a pair for each of `places`, with the ids 1, 2 and so on; `options` are for all. Before
  // the seal: it allocates.
  void create(std::span<const NvmeQueuePlace> places, NvmeQueuePair::Options options,
              volatile std::byte* registers);
  // Gives up all but the first `count`. Requires: they are wanted ended.
  void keep_first(uint32_t count) noexcept;

  void want(Phase phase) noexcept;
  // The phase that was wanted last.
  Phase phase() const noexcept { return phase_; }
  // Whether all shards have done what was wanted last.
  bool have_followed() const noexcept;
  // Whether a command of any was late twice.
  bool is_any_stuck() const noexcept;

  uint32_t count() const noexcept { return count_; }
  NvmeQueuePair& at(size_t index) const noexcept {
    BP_DCHECK(index < count_);
    return pairs_[index];
  }
  std::span<NvmeQueuePair> all() const noexcept { return {pairs_.get(), count_}; }

 private:
  std::unique_ptr<NvmeQueuePair[]> pairs_;
  uint32_t count_ = 0;
  Phase phase_ = Phase::kEnded;
};

}  // namespace bedplate
