#include "transport/loop/watch.h"

#include <cerrno>

#include <poll.h>
#include <sys/stat.h>

#include "platform/assert.h"
#include "transport/loop/shard_plan.h"

namespace bedplate {
namespace {

constexpr uint32_t kEventsToAsk = POLLIN | POLLOUT | POLLPRI | POLLRDHUP;
constexpr uint32_t kSlotShift = 3;
constexpr uint32_t kGenerationShift = 32;

}  // namespace

void WatchTable::create(uint32_t count_max, ShardPlan* plan) {
  BP_ASSERT(count_max < uint32_t{1} << (kGenerationShift - kSlotShift));
  plan_ = plan;
  slots_ = std::make_unique<Slot[]>(count_max);
  slot_count_ = count_max;
}

std::array<uint32_t, kHeapOwnerCountMax> WatchTable::counts() const noexcept {
  OwnerCounts counts = {};
  for (uint32_t i = 0; i < slot_count_; ++i) {
    if (slots_[i].watch != nullptr) ++counts[slots_[i].watch->asker.index];
  }
  return counts;
}

int WatchTable::refuse() noexcept {
  if (plan_ != nullptr) {
    OwnerCounts in_use = counts();
    ++in_use[current_heap_owner().index];
    plan_->log_refusal(ShardItem::kWatches, in_use);
  }
  return ENOSPC;
}

int WatchTable::insert(Watch& watch) noexcept {
  BP_REQUIRE(!watch.is_watched(),
             "a watch is started that is watched already: StreamSockets::start_watching");
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
  if (free == Watch::kNoSlot) return refuse();
  watch.slot = free;
  watch.asker = current_heap_owner();
  slots_[free] = {&watch, slots_[free].generation + 1, false};
  if (BP_DEBUG != 0 && plan_ != nullptr) {
    plan_->look_at(ShardItem::kWatches, watch.asker, counts());
  }
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
