// The part of a recording outside the data path: its creation, and the thread that empties files.
#include <sys/stat.h>

#include "apps/tsrelay/recording_datapath.h"
#include "apps/tsrelay/ts_packet_datapath.h"
#include "platform/log.h"

namespace bedplate::relay {

Result<void> Recording::create(PacketRing& ring, const std::vector<File*>& files,
                               const RecordingOptions& options) {
  BP_ASSERT(targets_.empty() && !files.empty() && options.counters != nullptr);
  BP_ASSERT(options.names != nullptr && options.names->count() == files.size());
  BP_ASSERT(options.preparer != nullptr && options.shard != nullptr);
  BP_ASSERT(files.size() > 1 || (options.rotate_bytes == 0 && options.rotate_ns == 0));
  ring_ = &ring;
  options_ = options;
  targets_ = std::vector<Target>(files.size());
  size_t youngest = 0;
  std::vector<bool> is_empty(files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    targets_[i].file = files[i];
    targets_[i].number = options.names->number(static_cast<uint32_t>(i));
    struct stat status;
    if (fstat(files[i]->fd(), &status) != 0) return error_from_errno("checking a recording");
    is_empty[i] = status.st_size == 0;
    if (is_empty[i]) continue;
    youngest = i;
    offset_ = static_cast<uint64_t>(status.st_size);
  }
  offset_ -= offset_ % kTsPacketBytes;
  // An empty file before the youngest has an old number; it stays kFull, to be begun anew.
  for (size_t i = youngest + 1; i < files.size(); ++i) targets_[i].state = kEmpty;
  current_ = youngest;
  targets_[youngest].state = kWritten;
  options_.counters->files.add(1);
  options_.counters->file.set(targets_[youngest].number);
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

void Recording::say_stuck(const Error* why) noexcept {
  const bool was_stuck = is_stuck_.exchange(why != nullptr, std::memory_order_acq_rel);
  if (why != nullptr && !was_stuck) log_error(*why);
  if (why == nullptr && was_stuck) BP_LOG_INFO("tsrelay: a recording has its next file again");
  // The shard now writes or drops the packets that waited for the file.
  options_.shard->ring();
}

// Returns false if it has given `next` up: the caller tries another file.
bool Recording::try_prepare(Target& next) noexcept {
  const uint32_t state = next.state.load(std::memory_order_acquire);
  if (state != kFull || next.writing_count.load(std::memory_order_acquire) != 0) return true;
  const auto index = static_cast<uint32_t>(&next - targets_.data());
  const int fd = next.file->fd();
  if (!options_.names->is_still_there(index, fd)) {
    log_error(
        error_while("emptying %s, the next file of a recording",
                    options_.names->name(index).c_str())
            .set_answer("it was moved away or removed, and is left alone")
            .set_cure("copy files of a recording instead of moving them; the slot of this one is "
                      "free again after the next start"));
    next.state.store(kGivenUp, std::memory_order_release);
    return false;
  }
  if (auto begun = options_.names->begin_anew(index, fd); !begun.ok()) {
    say_stuck(&begun.error());
    return true;
  }
  next.number = options_.names->number(index);
  next.state.store(kEmpty, std::memory_order_release);
  say_stuck(nullptr);
  return true;
}

void Recording::prepare() noexcept {
  if (targets_.size() < 2) return;
  const size_t current = current_.load(std::memory_order_acquire);
  while (Target* next = next_target(current)) {
    if (try_prepare(*next)) return;
  }
  Error error = error_while("looking for the next file of a recording")
                    .set_answer("all others were moved away or removed")
                    .set_cure("start again; copy files of a recording instead of moving them");
  say_stuck(&error);
}

}  // namespace bedplate::relay
