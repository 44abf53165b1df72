#include "apps/blockd/stores/file_store.h"

#include <algorithm>

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

namespace bedplate {
namespace {

constexpr uint32_t kSectorBytes = 512;

bool is_block_device(int fd) noexcept {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISBLK(status.st_mode);
}

FileAction action_of(const StoreOperation& operation) noexcept {
  switch (operation.action) {
    case StoreAction::kRead: return FileAction::kRead;
    case StoreAction::kWrite: return FileAction::kWrite;
    case StoreAction::kFlush: return FileAction::kSyncData;
    // Both actions leave zeros.
    case StoreAction::kWriteZeroes:
      return operation.keeps_room ? FileAction::kWriteZeroes : FileAction::kDiscard;
    case StoreAction::kDiscard: return FileAction::kDiscard;
    case StoreAction::kExtents: break;
  }
  return FileAction::kExtents;
}

}  // namespace

FileStore::FileStore(File& file, uint64_t bytes) noexcept
    : VolumeStore(nullptr, bytes != 0 ? bytes : align_down(file.bytes(), block_bytes_of(file)),
                  block_bytes_of(file),
                  // If a device cannot zero by itself, the kernel writes zeros to it: not fast.
                  {.has_extents = file.tells_extents() && !is_block_device(file.fd()),
                   .zeroes_fast = !is_block_device(file.fd())}),
      file_(file),
      is_device_(is_block_device(file.fd())),
      may_grow_(bytes == 0) {
  BP_ASSERT(this->bytes() <= file.bytes());
}

uint32_t FileStore::block_bytes_of(const File& file) noexcept {
  return std::max(file.alignment_bytes(), kSectorBytes);
}

void FileStore::begin(StoreOperation& operation) noexcept {
  FileOperation& file = operation.file;
  file.action = action_of(operation);
  file.is_durable = operation.is_durable;
  file.extent_count_max = operation.extent_count_max;
  file.memory = operation.memory;
  file.bytes = operation.bytes;
  file.offset = operation.offset;
  file.completed = operation.completed;
  file.context = operation.context;
  file_.begin(file);
}

// Reads the size that the kernel has cached. It never asks a file system's server, which may hang.
void FileStore::look_at_size() noexcept {
  if (!may_grow_) return;
  uint64_t bytes = 0;
  if (is_device_) {
    if (ioctl(file_.fd(), BLKGETSIZE64, &bytes) != 0) return;
  } else {
    struct statx status {};
    constexpr int kFlags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
    if (statx(file_.fd(), "", kFlags, STATX_SIZE, &status) != 0) return;
    bytes = status.stx_size;
  }
  bytes = align_down(bytes, block_bytes());
  if (bytes > this->bytes()) grow_to(bytes);
}

}  // namespace bedplate
