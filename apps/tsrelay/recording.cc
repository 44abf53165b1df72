// What a recording does beside the data path.
#include <algorithm>

#include <sys/stat.h>
#include <unistd.h>

#include "apps/tsrelay/recording_datapath.h"

namespace bedplate::relay {

// It goes on with the file behind the youngest, so that what was recorded last stays longest.
Result<void> Recording::create(PacketRing& ring, const std::vector<File*>& files,
                               const RecordingOptions& options) {
  BP_ASSERT(targets_.empty() && !files.empty() && options.counters != nullptr);
  ring_ = &ring;
  options_ = options;
  targets_ = std::vector<Target>(files.size());
  size_t youngest = files.size() - 1;
  timespec youngest_time = {};
  for (size_t i = 0; i < files.size(); ++i) {
    targets_[i].file = files[i];
    struct stat status;
    if (fstat(files[i]->fd(), &status) != 0) return error_from_errno("looking at a recording");
    if (status.st_size == 0) {
      targets_[i].state = kEmpty;
      continue;
    }
    const timespec& time = status.st_mtim;
    const bool is_younger =
        time.tv_sec > youngest_time.tv_sec ||
        (time.tv_sec == youngest_time.tv_sec && time.tv_nsec >= youngest_time.tv_nsec);
    if (!is_younger) continue;
    youngest = i;
    youngest_time = time;
  }
  const size_t first = (youngest + 1) % files.size();
  current_ = first;
  if (ftruncate(files[first]->fd(), 0) != 0) return error_from_errno("emptying a recording");
  targets_[first].state = kWritten;
  options_.counters->files.add(1);
  options_.counters->file.set(first);
  for (Write& write : writes_) {
    write.self = this;
    write.operation.context = &write;
    write.operation.completed = [](void* context, int64_t result) noexcept {
      auto& its = *static_cast<Write*>(context);
      its.self->written(its, result);
    };
    free_.push(write);
  }
  ring.add_tap(*this);
  BP_ASSERT(is_valid());
  return {};
}

void Recording::prepare() noexcept {
  if (targets_.size() < 2) return;
  Target& next = targets_[(current_.load(std::memory_order_acquire) + 1) % targets_.size()];
  if (next.state.load(std::memory_order_acquire) != kFull) return;
  if (next.writing_count.load(std::memory_order_acquire) != 0) return;
  if (ftruncate(next.file->fd(), 0) != 0) return;  // the next time
  next.state.store(kEmpty, std::memory_order_release);
}

}  // namespace bedplate::relay
