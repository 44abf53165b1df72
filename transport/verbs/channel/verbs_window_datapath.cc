// Memory windows: what one peer may reach for one message, or until it is withdrawn. A window is
// bound by a request before the message that tells of it, and invalidated by one whose end gives
// the memory back.
//
// Which key a window has whose requests were flushed nobody knows: those are made anew when the
// connection is down (verbs_recovery.cc).
//
// Tested by tests/transport/verbs/channel/verbs_provider_test.cc.
#include <algorithm>

#include "transport/verbs/channel/verbs_provider.h"

namespace bedplate {

bool VerbsEndpoint::can_bind(uint32_t index, std::span<const std::byte> memory) const noexcept {
  if (!has_window(index)) return false;
  const KeyedRange range = provider_.options_.keys->key(memory.data(), memory.size());
  return range.key != kNoKey && range.bytes == memory.size();
}

uint32_t VerbsEndpoint::bind_window(uint32_t index, std::span<const std::byte> memory,
                                    unsigned access) noexcept {
  Window& window = windows_[index];
  BP_DCHECK(window.state == WindowState::kFree && can_bind(index, memory));
  BP_DCHECK(may_send_ && queue_.room() > kRequestsKept);
  const Key key = provider_.options_.keys->key(memory.data(), memory.size()).key;
  window.handle->rkey = window.key;  // drivers take the former key from there
  window.key = ibv_inc_rkey(window.key);
  window.state = WindowState::kBound;
  const SendQueue::Slot slot = queue_.add(IBV_WR_BIND_MW, {.kind = RequestKind::kBind});
  slot.request.bind_mw.mw = window.handle;
  slot.request.bind_mw.rkey = window.key;
  slot.request.bind_mw.bind_info = {provider_.options_.device->region(key),
                                    reinterpret_cast<uintptr_t>(memory.data()), memory.size(),
                                    access};
  mark_dirty();
  return window.key;
}

// Now, or as soon as there is room.
void VerbsEndpoint::give_up_window(uint32_t index) noexcept {
  BP_DCHECK(is_live_ && windows_[index].state == WindowState::kBound);
  windows_[index].state = WindowState::kGivenUp;
  ++given_up_count_;
  mark_dirty();
}

void VerbsEndpoint::invalidate_windows() noexcept {
  BP_DCHECK(may_send_);
  for (uint32_t i = 0; i < kWindowCount && given_up_count_ > 0; ++i) {
    Window& window = windows_[i];
    if (window.state != WindowState::kGivenUp) continue;
    if (queue_.room() <= kRequestsKept) return;
    const SendQueue::Slot slot =
        queue_.add(IBV_WR_LOCAL_INV, {.kind = RequestKind::kInvalidate, .place = i});
    slot.request.invalidate_rkey = window.key;
    window.state = WindowState::kInvalidating;
    --given_up_count_;
    ++invalidations_out_;
    mark_dirty();
  }
}

void VerbsEndpoint::end_invalidation(uint32_t index, Outcome outcome) noexcept {
  BP_DCHECK(index < kWindowCount && windows_[index].state == WindowState::kInvalidating);
  if (outcome != Outcome::kDone) return;  // the life is over; so are its loans
  windows_[index].state = WindowState::kFree;
  if (index < kVerbsLoanCountMax) end_loan(index, Outcome::kDone);
}

}  // namespace bedplate
