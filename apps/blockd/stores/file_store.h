// A volume on a file or a block device, through the files of its shard (transport/files/files.h).
//
// There is no format: the volume's byte N is the file's byte N. Direct access bypasses the page
// cache. Writes survive a power cut as fdatasync(2) and RWF_DSYNC promise.
#pragma once

#include "apps/blockd/stores/volume_store.h"

namespace bedplate {

class FileStore final : public VolumeStore {
 public:
  // Stores the volume in the first `bytes` of `file`, which outlives this. If `bytes` is 0, it uses
  // all whole blocks of the file, also after the file grows. It has extents if the file tells them
  // and is no block device. Requires: the file is that long.
  FileStore(File& file, uint64_t bytes) noexcept;

  // The length of a block of `file`.
  static uint32_t block_bytes_of(const File& file) noexcept;

  void begin(StoreOperation& operation) noexcept override;
  void look_at_size() noexcept override;

 private:
  File& file_;
  const bool is_device_;
  const bool may_grow_;
};

}  // namespace bedplate
