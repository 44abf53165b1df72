#include "transport/verbs/channel/memory_windows_datapath.h"

namespace bedplate {

bool MemoryWindows::can_bind(uint32_t index, std::span<const std::byte> memory) const noexcept {
  if (!has(index)) return false;
  const KeyedRange range = parts_.keys->key(memory.data(), memory.size());
  return range.key != kNoKey && range.bytes == memory.size();
}

uint32_t MemoryWindows::bind(uint32_t index, std::span<const std::byte> memory,
                             unsigned access) noexcept {
  Window& window = windows_[index];
  BP_DCHECK(window.state == State::kFree && can_bind(index, memory));
  BP_DCHECK(channel_.may_send && channel_.has_room());
  const Key key = parts_.keys->key(memory.data(), memory.size()).key;
  window.handle->rkey = window.key;  // drivers take the old key from there
  window.key = ibv_inc_rkey(window.key);
  window.state = State::kBound;
  const SendQueue::Slot slot = channel_.queue.add(IBV_WR_BIND_MW, {.kind = RequestKind::kBind});
  slot.request.bind_mw.mw = window.handle;
  slot.request.bind_mw.rkey = window.key;
  slot.request.bind_mw.bind_info = {parts_.device->region(key),
                                    reinterpret_cast<uintptr_t>(memory.data()), memory.size(),
                                    access};
  return window.key;
}

uint32_t MemoryWindows::next_exposure() noexcept {
  for (uint32_t i = 0; i < kExposureCountMax; ++i) {
    const uint32_t at = (next_exposure_ + i) % kExposureCountMax;
    const uint32_t index = kVerbsLoanCountMax + at;
    if (!has(index) || !is_free(index)) continue;
    next_exposure_ = (at + 1) % kExposureCountMax;
    return index;
  }
  return kNone;
}

bool MemoryWindows::withdraw(uint64_t key) noexcept {
  for (uint32_t i = kVerbsLoanCountMax; i < kCount; ++i) {
    if (windows_[i].state != State::kBound || windows_[i].key != key) continue;
    give_up(i);
    return true;
  }
  return false;
}

void MemoryWindows::give_up(uint32_t index) noexcept {
  BP_DCHECK(channel_.is_live && index < kCount && has(index));
  BP_DCHECK(windows_[index].state == State::kBound);
  windows_[index].state = State::kGivenUp;
  ++given_up_count_;
}

void MemoryWindows::invalidate() noexcept {
  BP_DCHECK(channel_.may_send);
  for (uint32_t i = 0; i < kCount && given_up_count_ > 0; ++i) {
    Window& window = windows_[i];
    if (window.state != State::kGivenUp) continue;
    if (!channel_.has_room()) return;
    const SendQueue::Slot slot =
        channel_.queue.add(IBV_WR_LOCAL_INV, {.kind = RequestKind::kInvalidate, .window = i});
    slot.request.invalidate_rkey = window.key;
    window.state = State::kClosing;
    --given_up_count_;
    ++invalidations_out_;
  }
}

bool MemoryWindows::end_invalidation(uint32_t index, Outcome outcome) noexcept {
  BP_DCHECK(index < kCount && windows_[index].state == State::kClosing);
  BP_DCHECK(invalidations_out_ > 0);
  --invalidations_out_;
  if (outcome != Outcome::kDone) return false;
  windows_[index].state = State::kFree;
  return true;
}

}  // namespace bedplate
