// A volume's store: one interface to memory, files, block devices and drives.
//
// Operations are asynchronous, and copy nothing: the device reads and writes the caller's memory. A
// store gets only whole blocks, except for kExtents; StoreQueue turns other requests into whole
// blocks and limits the number of concurrent operations. Memory is the exception: callers use its
// address, and begin no operation on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "platform/assert.h"
#include "transport/files/files.h"
#include "transport/nvme/nvme_io_datapath.h"

namespace bedplate {

enum class StoreAction : uint8_t {
  kRead,
  kWrite,
  kFlush,        // all writes completed before it began survive a power cut
  kWriteZeroes,  // the range reads as zeros and its space is freed, or EOPNOTSUPP
  kDiscard,      // the range is no longer needed; it may read as anything
  kExtents,      // the parts of the range that have data
};

// One operation. The caller fills it, and keeps it and its memory untouched until `completed`.
struct StoreOperation {
  StoreAction action = StoreAction::kRead;
  bool is_durable = false;      // kWrite: its data survive a power cut once it has completed
  bool keeps_room = false;      // kWriteZeroes: its space stays allocated, so a later write cannot
                                // lack space
  std::byte* memory = nullptr;  // kRead, kWrite: aligned to a block; kExtents: FileExtent[]
  uint32_t extent_count_max = 0;  // kExtents: the capacity of `memory`
  uint64_t bytes = 0;             // all but kFlush; whole blocks, except for kExtents
  uint64_t offset = 0;
  // Called on the volume's shard, never from within begin(). A negative `result` is -errno. For
  // kRead it is else the number of bytes read, which is too small if the file was truncated; for
  // kExtents the number of extents, which may end before the range does; for other actions it has
  // no meaning. EOPNOTSUPP: the store cannot do this, and has done nothing.
  void (*completed)(void* context, int64_t result) noexcept = nullptr;
  void* context = nullptr;

  FileOperation file;  // `file` and `nvme` belong to the store
  NvmeOperation nvme;
};

class VolumeStore {
 public:
  VolumeStore(const VolumeStore&) = delete;
  VolumeStore& operator=(const VolumeStore&) = delete;
  virtual ~VolumeStore() = default;

  // Threads: the volume's shard. Requires: memory() is nullptr; the range is within the store;
  // kExtents only with has_extents().
  virtual void begin(StoreOperation& operation) noexcept = 0;

  // Updates bytes() if the store has grown. It never waits for the store. Threads: the main thread.
  virtual void look_at_size() noexcept {}

  // The address of its bytes, if the store is memory; else nullptr.
  std::byte* memory() const noexcept { return memory_; }
  // Whole blocks; it only grows. Threads: any.
  uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  // A power of two.
  uint32_t block_bytes() const noexcept { return block_bytes_; }
  // Whether kExtents tells which parts have data; if not, all parts count as data.
  bool has_extents() const noexcept { return traits_.has_extents; }
  // Whether kWriteZeroes with keeps_room costs less than writing zeros, whatever the range.
  bool zeroes_fast() const noexcept { return traits_.zeroes_fast; }

 protected:
  struct Traits {
    bool has_extents = false;
    bool zeroes_fast = false;
  };
  VolumeStore(std::byte* memory, uint64_t bytes, uint32_t block_bytes, Traits traits) noexcept
      : memory_(memory), bytes_(bytes), block_bytes_(block_bytes), traits_(traits) {}
  void grow_to(uint64_t bytes) noexcept { bytes_.store(bytes, std::memory_order_relaxed); }

 private:
  std::byte* const memory_;
  std::atomic<uint64_t> bytes_;
  const uint32_t block_bytes_;
  const Traits traits_;
};

// Memory of the pool, which lasts as long as the appliance runs.
class MemoryStore final : public VolumeStore {
 public:
  MemoryStore(std::byte* memory, uint64_t bytes) noexcept : VolumeStore(memory, bytes, 1, {}) {}
  void begin(StoreOperation&) noexcept override { BP_ASSERT(!"memory is read and written"); }
};

}  // namespace bedplate
