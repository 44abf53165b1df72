#include "transport/loop/watch.h"

#include <cerrno>

#include <poll.h>
#include <sys/stat.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr uint32_t kEventsToAsk = POLLIN | POLLOUT | POLLPRI | POLLRDHUP;
constexpr uint32_t kSlotShift = 3;
constexpr uint32_t kGenerationShift = 32;

}  // namespace

void WatchTable::create(uint32_t count_max) {
  BP_ASSERT(count_max < uint32_t{1} << (kGenerationShift - kSlotShift));
  slots_ = std::make_unique<Slot[]>(count_max);
  slot_count_ = count_max;
}

int WatchTable::insert(Watch& watch) noexcept {
  BP_ASSERT(!watch.is_watched());
  if (!watch.is_socket) {
    struct stat status {};
    if (fstat(watch.fd, &status) != 0) return errno;
    if (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) return EPERM;
  }
  const bool asks = watch.events != 0 && (watch.events & ~kEventsToAsk) == 0;
  if (!asks || watch.ready == nullptr) return EINVAL;
  uint32_t free = Watch::kNoSlot;
  for (uint32_t i = slot_count_; i-- > 0;) {
    if (slots_[i].watch == nullptr) {
      free = i;
    } else if (slots_[i].watch->fd == watch.fd) {
      return EEXIST;
    }
  }
  if (free == Watch::kNoSlot) return ENOSPC;
  watch.slot = free;
  watch.asker = current_heap_owner();
  slots_[free] = {&watch, slots_[free].generation + 1, false};
  return 0;
}

void WatchTable::remove(Watch& watch) noexcept {
  BP_ASSERT(watch.slot < slot_count_ && slots_[watch.slot].watch == &watch);
  slots_[watch.slot].watch = nullptr;
  watch.slot = Watch::kNoSlot;
}

uint64_t WatchTable::key_of(const Watch& watch) const noexcept {
  return (uint64_t{slots_[watch.slot].generation} << kGenerationShift) |
         (uint64_t{watch.slot} << kSlotShift);
}

Watch* WatchTable::find(uint64_t key) const noexcept {
  const auto slot = static_cast<uint32_t>(key) >> kSlotShift;
  if (slot >= slot_count_ || slots_[slot].generation != key >> kGenerationShift) return nullptr;
  return slots_[slot].watch;
}

}  // namespace bedplate
