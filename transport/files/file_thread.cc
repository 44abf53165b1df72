#include "transport/files/file_thread.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

#include <fcntl.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/clock.h"
#include "transport/files/file_ranges.h"

namespace bedplate {
namespace {

constexpr uint64_t kWaitMaxMs = 1000;  // because poll(2) takes an int

void wait_for(const Doorbell& doorbell, int timeout_ms) noexcept {
  pollfd event = {.fd = doorbell.event_fd(), .events = POLLIN, .revents = 0};
  ::poll(&event, 1, timeout_ms);
}

// Finds the operation's extents. Returns how many there are, or -errno.
int64_t find_extents(const FileOperation& operation) noexcept {
  const int fd = operation.file->fd();
  auto* extents = static_cast<FileExtent*>(operation.memory);
  const auto end = static_cast<off_t>(operation.offset + operation.bytes);
  auto at = static_cast<off_t>(operation.offset);
  uint32_t count = 0;
  while (at < end && count < operation.extent_count_max) {
    off_t next = lseek(fd, at, SEEK_DATA);
    if (next < 0 && errno != ENXIO) return errno == EINVAL ? -EOPNOTSUPP : -errno;
    if (next < 0) next = end;  // only a hole follows, or the end of the file
    const bool has_data = next == at;
    if (has_data) next = lseek(fd, at, SEEK_HOLE);
    if (next < 0) return -errno;
    if (next == at) continue;  // the data has become a hole meanwhile
    next = std::min(next, end);
    extents[count++] = {static_cast<uint64_t>(next - at), has_data};
    at = next;
  }
  return count;
}

// Carries out the rest of the operation, with one system call. Returns bytes, 0, or -errno.
int64_t carry_out(const FileOperation& operation) noexcept {
  const int fd = operation.file->fd();
  auto* memory = static_cast<std::byte*>(operation.memory) + operation.moved_bytes;
  const size_t bytes = std::min(operation.bytes - operation.moved_bytes, kFilePieceBytesMax);
  const auto offset = static_cast<off_t>(operation.offset + operation.moved_bytes);
  int64_t outcome = -1;
  switch (operation.action) {
    case FileAction::kRead: outcome = pread(fd, memory, bytes, offset); break;
    case FileAction::kWrite: {
      const iovec vector = {memory, bytes};
      outcome = pwritev2(fd, &vector, 1, offset, operation.is_durable ? RWF_DSYNC : 0);
      break;
    }
    case FileAction::kSync: outcome = fsync(fd); break;
    case FileAction::kSyncData: outcome = fdatasync(fd); break;
    case FileAction::kAllocate:
    case FileAction::kWriteZeroes:
    case FileAction::kDiscard:
      outcome = fallocate(fd, fallocate_mode(operation.action), offset,
                          static_cast<off_t>(operation.bytes));
      break;
    case FileAction::kExtents: return find_extents(operation);
  }
  return outcome < 0 ? -errno : outcome;
}

}  // namespace

void FileThread::LaneDeleter::operator()(Lane* lane) const noexcept {
  ::operator delete (lane, std::align_val_t{kCacheLineBytes});
}

FileThread::OwnedLane FileThread::make_lane(uint32_t operation_count_max) {
  const uint64_t capacity = std::bit_ceil(uint64_t{operation_count_max});
  const uint64_t bytes = Lane::bytes_for(capacity);
  auto* memory = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kCacheLineBytes}));
  return OwnedLane(Lane::create({memory, bytes}, capacity));
}

Result<void> FileThread::open(Files& files, const KeyTable&, uint32_t operation_count_max) {
  BP_ASSERT(!is_running_);
  files_ = &files;
  begun_ = make_lane(operation_count_max);
  ended_ = make_lane(operation_count_max);
  BP_TRY(doorbell_.create());
  BP_TRY(thread_.start(
      "files", [](void* self) noexcept { static_cast<FileThread*>(self)->run(); }, this));
  is_running_ = true;
  return {};
}

void FileThread::close(bool leaves_operations) noexcept {
  if (!is_running_) return;
  is_running_ = false;
  must_stop_.store(true, std::memory_order_release);
  doorbell_.ring();
  if (leaves_operations) {
    thread_.join_or_leave(0);
  } else {
    thread_.join();
  }
}

void FileThread::issue(FileOperation& operation) noexcept {
  const bool has_room = begun_->try_push(&operation);
  BP_ASSERT(has_room);  // the lane holds all that Files may issue
  doorbell_.ring();
}

uint32_t FileThread::poll(uint32_t budget) noexcept {
  uint32_t count = 0;
  FileOperation* operation = nullptr;
  while (count < budget && ended_ != nullptr && ended_->try_pop(&operation)) {
    files_->handle(*operation, operation->answer);
    ++count;
  }
  return count;
}

// The loop has ended and cannot sleep on its doorbell, so this waits for the doorbell itself.
bool FileThread::wait(uint64_t deadline_ns) noexcept {
  while (poll(1) == 0) {
    const uint64_t now_ns = monotonic_ns();
    if (now_ns >= deadline_ns) return false;
    const uint64_t left_ms = (deadline_ns - now_ns) / kNsPerMs + 1;
    loop_doorbell_.announce_sleep();
    const bool has_come = poll(1) > 0;
    if (!has_come) wait_for(loop_doorbell_, static_cast<int>(std::min(left_ms, kWaitMaxMs)));
    loop_doorbell_.announce_awake();
    loop_doorbell_.acknowledge();
    if (has_come) return true;
  }
  return true;
}

void FileThread::run() noexcept {
  while (!must_stop_.load(std::memory_order_acquire)) {
    FileOperation* operation = nullptr;
    if (!begun_->try_pop(&operation)) {
      sleep();
      continue;
    }
    operation->answer = carry_out(*operation);
    const bool has_room = ended_->try_push(operation);
    BP_ASSERT(has_room);
    loop_doorbell_.ring();
  }
}

// Looks once more after the announcement: a producer that pushed before it rang nobody
// (transport/loop/doorbell.h).
void FileThread::sleep() noexcept {
  doorbell_.announce_sleep();
  if (begun_->is_empty() && !must_stop_.load(std::memory_order_acquire)) wait_for(doorbell_, -1);
  doorbell_.announce_awake();
  doorbell_.acknowledge();
}

}  // namespace bedplate
