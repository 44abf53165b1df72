#include "apps/testing/memory_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/assert.h"

namespace bedplate::testing {

void MemoryFile::fail(FileAction action, int error_number, uint32_t count, uint32_t after_count) {
  BP_ASSERT(error_number > 0 && error_number != EAGAIN && error_number != EINTR);
  std::erase_if(failures_, [action](const Failure& each) { return each.action == action; });
  if (count > 0) failures_.push_back({action, error_number, after_count, count});
}

// The number of the error with which this operation ends; 0: none.
int MemoryFile::failure_of(FileAction action) noexcept {
  for (Failure& failure : failures_) {
    if (failure.action != action) continue;
    if (failure.after_count > 0) {
      --failure.after_count;
      return 0;
    }
    if (failure.count == 0) return 0;
    --failure.count;
    return failure.error_number;
  }
  return 0;
}

int64_t MemoryFile::read(FileOperation& operation) const {
  const uint64_t offset = operation.offset + operation.moved_bytes;
  if (offset >= content.size()) return 0;
  const uint64_t bytes = std::min(operation.bytes - operation.moved_bytes, content.size() - offset);
  std::memcpy(static_cast<char*>(operation.memory) + operation.moved_bytes, content.data() + offset,
              bytes);
  return static_cast<int64_t>(bytes);
}

int64_t MemoryFile::write(FileOperation& operation) {
  const auto* from = static_cast<const char*>(operation.memory);
  const auto put = [&](std::string& into) {
    if (into.size() < operation.offset + operation.bytes) {
      into.resize(operation.offset + operation.bytes);
    }
    into.replace(operation.offset, operation.bytes, from, operation.bytes);
  };
  put(content);
  if (operation.is_durable) put(synced_);
  return static_cast<int64_t>(operation.bytes);
}

// Zeroes the range.
void MemoryFile::set_range(uint64_t offset, uint64_t bytes, bool may_grow) {
  const uint64_t end = offset + bytes;
  if (may_grow && content.size() < end) content.resize(end);
  for (uint64_t at = offset; at < std::min<uint64_t>(end, content.size()); ++at) content[at] = '\0';
}

int64_t MemoryFile::carry_out(FileOperation& operation) {
  if (!is_used_) synced_ = content;
  is_used_ = true;
  // The rest of a read that met the end of the file belongs to the same operation.
  const int error_number = operation.moved_bytes == 0 ? failure_of(operation.action) : 0;
  if (error_number != 0) return -error_number;
  const bool changes =
      operation.action != FileAction::kRead && operation.action != FileAction::kSync &&
      operation.action != FileAction::kSyncData && operation.action != FileAction::kExtents;
  if (changes && !is_writable_) return -EBADF;
  const uint64_t alignment = operation.file->alignment_bytes();
  const bool moves_bytes =
      operation.action == FileAction::kRead || operation.action == FileAction::kWrite;
  if (moves_bytes && (operation.offset % alignment != 0 || operation.bytes % alignment != 0 ||
                      reinterpret_cast<uintptr_t>(operation.memory) % alignment != 0)) {
    return -EINVAL;
  }
  switch (operation.action) {
    case FileAction::kRead: return read(operation);
    case FileAction::kWrite: return write(operation);
    case FileAction::kSync:
    case FileAction::kSyncData: synced_ = content; return 0;
    case FileAction::kAllocate:
      content.resize(std::max<uint64_t>(content.size(), operation.offset + operation.bytes));
      return 0;
    case FileAction::kWriteZeroes: set_range(operation.offset, operation.bytes, true); return 0;
    case FileAction::kDiscard: set_range(operation.offset, operation.bytes, false); return 0;
    case FileAction::kExtents: break;
  }
  // All of it is data.
  if (operation.offset >= content.size() || operation.extent_count_max == 0) return 0;
  *static_cast<FileExtent*>(operation.memory) = {
      std::min(operation.bytes, content.size() - operation.offset), true};
  return 1;
}

void MemoryFiles::add(MemoryFile& file, bool is_writable) {
  BP_ASSERT(files_ == nullptr);
  file.is_writable_ = is_writable;
  all_.push_back(&file);
}

Result<void> MemoryFiles::open(Files& files, const KeyTable& /*keys*/,
                               uint32_t operation_count_max) {
  BP_ASSERT(files_ == nullptr && files.all().size() == all_.size());
  files_ = &files;
  issued_.reserve(operation_count_max);
  return {};
}

void MemoryFiles::issue(FileOperation& operation) noexcept {
  ++all_[operation.file->index()]->waiting_count_;
  issued_.push_back(&operation);
}

// The callback of an operation may begin another one, which is appended.
uint32_t MemoryFiles::end_some(uint32_t budget, bool with_held) noexcept {
  uint32_t count = 0;
  for (size_t i = 0; i < issued_.size() && count < budget;) {
    FileOperation& operation = *issued_[i];
    MemoryFile& file = *all_[operation.file->index()];
    if (file.is_held_ && !with_held) {
      ++i;
      continue;
    }
    issued_.erase(issued_.begin() + static_cast<std::ptrdiff_t>(i));
    --file.waiting_count_;
    ++count;
    files_->handle(operation, file.carry_out(operation));
  }
  return count;
}

bool MemoryFiles::wait(uint64_t /*deadline_ns*/) noexcept { return end_some(1, true) > 0; }

void MemoryFiles::close(bool leaves_operations) noexcept { BP_ASSERT(!leaves_operations); }

}  // namespace bedplate::testing
