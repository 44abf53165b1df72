// Creation of memory windows, also again after a connection.
#include "transport/verbs/channel/memory_windows_datapath.h"

namespace bedplate {

MemoryWindows::~MemoryWindows() {
  for (Window& window : windows_) {
    if (window.handle != nullptr) ibv_dealloc_mw(window.handle);
  }
}

Result<void> MemoryWindows::create() {
  if (!parts_.uses_windows) return {};
  for (Window& window : windows_) {
    if (make(window)) continue;
    return error_from_errno("making %u memory windows for %s", kCount, channel_.link.name.c_str())
        .set_cure("make the number of peers smaller");
  }
  return {};
}

// Allocating a window is not a registration: it pins and opens nothing until it is bound.
bool MemoryWindows::make(Window& window) noexcept {
  window = {};
  window.handle = ibv_alloc_mw(parts_.device->domain(), IBV_MW_TYPE_2);
  if (window.handle == nullptr) return false;
  window.key = window.handle->rkey;
  return true;
}

void MemoryWindows::renew() noexcept {
  BP_DCHECK(!channel_.is_live && !channel_.is_draining && channel_.queue.is_idle());
  for (Window& window : windows_) {
    const bool is_lacking = window.handle == nullptr && parts_.uses_windows;
    if (window.state == State::kFree && !is_lacking) continue;
    if (!is_lacking) ibv_dealloc_mw(window.handle);
    make(window);
  }
  given_up_count_ = 0;
}

bool MemoryWindows::is_valid() const noexcept {
  uint32_t given_up_count = 0;
  uint32_t closing_count = 0;
  for (const Window& window : windows_) {
    given_up_count += window.state == State::kGivenUp;
    closing_count += window.state == State::kClosing;
    if (window.state != State::kFree && window.handle == nullptr) return false;
  }
  return given_up_count == given_up_count_ && next_exposure_ < kExposureCountMax &&
         (!channel_.is_live || closing_count == invalidations_out_) &&
         invalidations_out_ == channel_.count_of(RequestKind::kInvalidate);
}

}  // namespace bedplate
