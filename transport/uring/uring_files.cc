#include "transport/uring/uring_files.h"

#include <cerrno>

#include <sys/uio.h>

#include "platform/assert.h"
#include "platform/clock.h"
#include "transport/files/file_ranges.h"

namespace bedplate {
namespace {

// Whether reads and writes of the file may block, because the kernel cannot be asked not to wait
// for it. io_uring tries reads and writes at once, within the shard's own call, and takes a file
// that poll(2) calls ready for one that does not block. So a FUSE file holds up the shard for as
// long as its server likes.
bool would_wait(int fd) noexcept {
  char byte = 0;
  const iovec vector = {&byte, sizeof byte};
  return preadv2(fd, &vector, 1, 0, RWF_NOWAIT) < 0 && errno == EOPNOTSUPP;
}

}  // namespace

io_uring_sqe& next_ring_entry(io_uring& ring, Counter& system_calls) noexcept {
  io_uring_sqe* entry = io_uring_get_sqe(&ring);
  if (entry == nullptr) {
    io_uring_submit(&ring);
    system_calls.add(1);
    entry = io_uring_get_sqe(&ring);
    BP_ASSERT(entry != nullptr);
  }
  return *entry;
}

void prepare_move(io_uring_sqe& entry, const KeyTable& keys,
                  const FileOperation& operation) noexcept {
  const auto fd = static_cast<int>(operation.file->index());
  auto* memory = static_cast<std::byte*>(operation.memory) + operation.moved_bytes;
  BP_DCHECK(operation.action == FileAction::kRead || operation.action == FileAction::kWrite);
  BP_DCHECK(operation.moved_bytes <= operation.bytes);
  const uint64_t left = operation.bytes - operation.moved_bytes;
  const uint64_t offset = operation.offset + operation.moved_bytes;
  const KeyedRange range = keys.key(memory, left);
  const bool has_key = range.key != kNoKey;
  const auto bytes =
      static_cast<unsigned>(std::min(has_key ? range.bytes : left, kFilePieceBytesMax));
  BP_DCHECK(!has_key || range.key <= UINT16_MAX);
  const auto key = static_cast<int>(range.key);
  const bool is_read = operation.action == FileAction::kRead;
  if (is_read && has_key) io_uring_prep_read_fixed(&entry, fd, memory, bytes, offset, key);
  if (is_read && !has_key) io_uring_prep_read(&entry, fd, memory, bytes, offset);
  if (!is_read && has_key) io_uring_prep_write_fixed(&entry, fd, memory, bytes, offset, key);
  if (!is_read && !has_key) io_uring_prep_write(&entry, fd, memory, bytes, offset);
  if (!is_read && operation.is_durable) entry.rw_flags = RWF_DSYNC;
}

Result<void> UringFiles::open(Files& files, const KeyTable& keys, uint32_t) {
  BP_DCHECK(loop_ != nullptr && loop_->is_own_thread());
  BP_ASSERT(files_ == nullptr && system_calls_ != nullptr);
  files_ = &files;
  keys_ = &keys;
  std::vector<int> numbers;
  for (const File& file : files.all()) {
    numbers.push_back(file.fd());
    would_wait_.push_back(would_wait(file.fd()));
  }
  const int outcome =
      io_uring_register_files(&ring_, numbers.data(), static_cast<unsigned>(numbers.size()));
  is_registered_ = outcome == 0;
  if (is_registered_) return {};
  errno = -outcome;
  return error_from_errno("registering %zu files with io_uring", numbers.size())
      .set_cure("raise the limit of open files (ulimit -n), or set [event_loop] sockets = "
                "\"epoll\"");
}

void UringFiles::close(bool leaves_operations) noexcept {
  if (!is_registered_ || leaves_operations) return;
  BP_DCHECK(loop_->is_own_thread());
  const int outcome = io_uring_unregister_files(&ring_);
  BP_ASSERT(outcome == 0);  // fails if the ring was closed before, or belongs to another thread
  is_registered_ = false;
}

void UringFiles::issue(FileOperation& operation) noexcept {
  BP_DCHECK(loop_->is_own_thread());
  BP_DCHECK(is_registered_ && operation.is_in_flight && !operation.is_polled);
  BP_DCHECK(operation.file->index() < would_wait_.size());
  io_uring_sqe* entry = &next_ring_entry(ring_, *system_calls_);
  const auto fd = static_cast<int>(operation.file->index());
  switch (operation.action) {
    case FileAction::kRead:
    case FileAction::kWrite:
      prepare_move(*entry, *keys_, operation);
      // Hands it to one of the kernel's threads, without a try.
      if (would_wait_[operation.file->index()] != 0) entry->flags |= IOSQE_ASYNC;
      break;
    case FileAction::kSync: io_uring_prep_fsync(entry, fd, 0); break;
    case FileAction::kSyncData: io_uring_prep_fsync(entry, fd, IORING_FSYNC_DATASYNC); break;
    case FileAction::kAllocate:
    case FileAction::kWriteZeroes:
    case FileAction::kDiscard:
      io_uring_prep_fallocate(entry, fd, fallocate_mode(operation.action),
                              static_cast<off_t>(operation.offset),
                              static_cast<off_t>(operation.bytes));
      break;
    case FileAction::kExtents: BP_ASSERT(!"a ring cannot look for extents: Files::open");
  }
  entry->flags |= IOSQE_FIXED_FILE;
  entry->user_data = reinterpret_cast<uint64_t>(&operation) | tag_;
}

void UringFiles::handle(uint64_t user_data, int32_t result) noexcept {
  BP_DCHECK(loop_->is_own_thread() && (user_data & tag_mask_) == tag_);
  files_->handle(*reinterpret_cast<FileOperation*>(user_data & ~tag_mask_), result);
}

bool UringFiles::wait(uint64_t deadline_ns) noexcept {
  BP_DCHECK(loop_->is_own_thread() && is_registered_);
  for (bool has_come = false; !has_come;) {
    const uint64_t now_ns = monotonic_ns();
    if (now_ns >= deadline_ns) return false;
    const uint64_t left_ns = deadline_ns - now_ns;
    __kernel_timespec timeout = {.tv_sec = static_cast<int64_t>(left_ns / kNsPerSecond),
                                 .tv_nsec = static_cast<long long>(left_ns % kNsPerSecond)};
    io_uring_cqe* completion = nullptr;
    io_uring_submit_and_wait_timeout(&ring_, &completion, 1, &timeout, nullptr);
    system_calls_->add(1);
    while (io_uring_peek_cqe(&ring_, &completion) == 0) {
      const uint64_t user_data = completion->user_data;
      const int32_t result = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      if ((user_data & tag_mask_) != tag_) continue;
      handle(user_data, result);
      has_come = true;
    }
  }
  return true;
}

}  // namespace bedplate
