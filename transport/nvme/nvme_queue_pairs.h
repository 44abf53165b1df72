// All I/O queue pairs of a drive, for the drive's control. The control wants the same phase of all
// pairs, and each shard carries that wish out for its own pair (nvme_queue_pair_datapath.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "platform/assert.h"
#include "transport/nvme/nvme_queue_pair_datapath.h"

namespace bedplate {

// The memory and the counters of a queue pair. The memory is zeroed and page aligned, and has
// NvmeQueuePair::bytes_for(NvmeOptions::queue_entries) bytes.
struct NvmeQueueMemory {
  std::span<std::byte> memory;
  NvmeQueueCounters* counters = nullptr;
};

// Threads: the control's.
class NvmeQueuePairs {
 public:
  using Phase = NvmeQueuePair::Phase;

  // Makes a pair for each of `memories`, with the ids 1, 2 and so on; all have the same `options`.
  // Before the seal: it allocates.
  void create(std::span<const NvmeQueueMemory> memories, NvmeQueuePair::Options options,
              volatile std::byte* registers);
  // Drops all but the first `count` pairs. Requires: the last wish was kEnded.
  void keep_first(uint32_t count) noexcept;

  void want(Phase phase) noexcept;
  // The phase of the last wish.
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
