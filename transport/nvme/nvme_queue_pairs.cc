#include "transport/nvme/nvme_queue_pairs.h"

#include <algorithm>

namespace bedplate {

void NvmeQueuePairs::create(std::span<const NvmeQueueMemory> memories,
                            NvmeQueuePair::Options options, volatile std::byte* registers) {
  count_ = static_cast<uint32_t>(memories.size());
  pairs_ = std::make_unique<NvmeQueuePair[]>(count_);
  for (uint32_t i = 0; i < count_; ++i) {
    options.id = static_cast<uint16_t>(i + 1);
    pairs_[i].create(options, memories[i].memory, registers, *memories[i].counters);
  }
}

void NvmeQueuePairs::keep_first(uint32_t count) noexcept {
  BP_DCHECK(phase_ == Phase::kEnded);  // the dropped pairs get no more wishes
  count_ = std::min(count_, count);
}

void NvmeQueuePairs::want(Phase phase) noexcept {
  phase_ = phase;
  for (NvmeQueuePair& pair : all()) pair.want(phase);
}

bool NvmeQueuePairs::have_followed() const noexcept {
  const std::span<NvmeQueuePair> pairs = all();
  return std::all_of(pairs.begin(), pairs.end(),
                     [](const NvmeQueuePair& pair) { return pair.has_followed(); });
}

bool NvmeQueuePairs::is_any_stuck() const noexcept {
  const std::span<NvmeQueuePair> pairs = all();
  return std::any_of(pairs.begin(), pairs.end(),
                     [](const NvmeQueuePair& pair) { return pair.is_stuck(); });
}

}  // namespace bedplate
