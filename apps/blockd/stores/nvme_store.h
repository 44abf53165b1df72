// A volume on a namespace of an NVMe drive that Bedplate drives itself (transport/nvme/), through
// the drive's queue pair on the volume's shard.
//
// The volume's byte N is the namespace's byte N. Writes survive a power cut as the drive's Flush
// and Force Unit Access promise.
#pragma once

#include "apps/blockd/stores/volume_store.h"
#include "transport/nvme/nvme_drive.h"

namespace bedplate {

class NvmeStore final : public VolumeStore {
 public:
  // Stores the volume in the first `bytes` of the namespace. If `bytes` is 0, it uses the whole
  // namespace, also after the namespace grows. Requires: the namespace is that long; queue and
  // namespace belong to one drive, which is ready and outlives this.
  NvmeStore(NvmeDriveQueue& queue, const NvmeNamespace& space, uint64_t bytes) noexcept;

  static uint64_t bytes_of(const NvmeNamespace& space) noexcept {
    return space.block_count.load(std::memory_order_relaxed) << space.block_log2;
  }

  void begin(StoreOperation& operation) noexcept override;
  void look_at_size() noexcept override;

 private:
  static void ended(void* context, int error) noexcept;

  NvmeDriveQueue& queue_;
  const NvmeNamespace& space_;
  const bool may_grow_;
};

}  // namespace bedplate
