// All I/O queue pairs of a drive, as its control sees them: one wish for all, which the shards
// follow (nvme_queue_pair_datapath.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "platform/assert.h"
#include "transport/nvme/nvme_queue_pair_datapath.h"

namespace bedplate {

// The memory of a queue pair: NvmeQueuePair::bytes_for(NvmeOptions::queue_entries), zeroed, page
// aligned.
struct NvmeQueuePlace {
  std::span<std::byte> memory;
  NvmeQueueCounters* counters = nullptr;
};

// Threads: the control's.
class NvmeQueuePairs {
 public:
  using Phase = NvmeQueuePair::Phase;

  // Makes a pair for each of `places`, with the ids 1, 2 and so on; all have the same `options`.
  // Before the seal: it allocates.
  void create(std::span<const NvmeQueuePlace> places, NvmeQueuePair::Options options,
              volatile std::byte* registers);
  // Drops all but the first `count` pairs. Requires: kEnded was wanted last.
  void keep_first(uint32_t count) noexcept;

  void want(Phase phase) noexcept;
  // The phase that was wanted last.
  Phase phase() const noexcept { return phase_; }
  // Whether all shards have carried out the last wish.
  bool have_followed() const noexcept;
  // Whether any pair has a command that was late twice.
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
