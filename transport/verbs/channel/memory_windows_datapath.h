// The memory windows of one peer. A window opens memory to this peer alone, for one loan or until
// the memory is withdrawn.
//
// A request before the message that tells of it binds the window; the memory is closed when the
// request that invalidates it has ended. If these requests were flushed, the window's key is
// unknown: such windows are made anew when the connection is down. The window of each loan has the
// loan's number; those of exposures follow.
//
// A part of VerbsEndpoint. Without windows (VerbsParts::uses_windows) none can be bound. Threads:
// the shard's.
//
// Invariants: 1. A window that is not free exists. 2. given_up_count_ counts those that are given
// up. 3. The invalidations that it counts are those in the queue, and, while the connection lives,
// the windows that are ending. (is_valid)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <infiniband/verbs.h>

#include "platform/result.h"
#include "transport/messages/endpoint.h"
#include "transport/verbs/channel/channel_parts.h"
#include "transport/verbs/channel/verbs_parts.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {

class MemoryWindows {
 public:
  static constexpr uint32_t kExposureCountMax = 16;
  static constexpr uint32_t kCount = kVerbsLoanCountMax + kExposureCountMax;
  static constexpr uint32_t kNone = UINT32_MAX;

  // `channel` outlives this. create() follows.
  explicit MemoryWindows(ChannelParts& channel) noexcept
      : parts_(channel.shared), channel_(channel) {}
  MemoryWindows(const MemoryWindows&) = delete;
  MemoryWindows& operator=(const MemoryWindows&) = delete;
  // Requires: their queue pair is still there (device_quirks.h).
  ~MemoryWindows();

  // Makes all, if windows are used. Before the seal; once. Errors: the device's.
  Result<void> create();
  // The life is over: windows whose keys are unknown, and those that are lacking, are made anew.
  // Without one, a loan is refused, until the next life tries again.
  void renew() noexcept;

  bool has(uint32_t index) const noexcept { return windows_[index].handle != nullptr; }
  bool is_free(uint32_t index) const noexcept { return windows_[index].state == State::kFree; }
  // Whether it is given up, and the device has not said yet that it is closed.
  bool is_ending(uint32_t index) const noexcept {
    return windows_[index].state == State::kGivenUp || windows_[index].state == State::kClosing;
  }
  // Whether there is one, and one region holds the memory.
  bool can_bind(uint32_t index, std::span<const std::byte> memory) const noexcept;
  // Returns the remote key. Requires: can_bind, the window is free, room for a request.
  uint32_t bind(uint32_t index, std::span<const std::byte> memory, unsigned access) noexcept;

  // Returns a free window for an exposure, or kNone. In turn, so that a key comes again as late as
  // possible.
  uint32_t next_exposure() noexcept;
  // Gives up the exposure with this key. Returns false if there is none.
  bool withdraw(uint64_t key) noexcept;

  // Its invalidation follows with the next batch, or as soon as there is room. Requires: it is
  // bound.
  void give_up(uint32_t index) noexcept;
  bool has_given_up() const noexcept { return given_up_count_ > 0; }
  // Lists the invalidations of windows that are given up, as many as there is room for.
  void invalidate() noexcept;
  // The request of one has ended. Returns whether the window is closed, and free again; else the
  // life is over.
  bool end_invalidation(uint32_t index, Outcome outcome) noexcept;
  uint32_t invalidations_out() const noexcept { return invalidations_out_; }

  bool is_valid() const noexcept;

 private:
  enum class State : uint8_t {
    kFree,
    kBound,
    kGivenUp,  // to be invalidated
    kClosing,  // its invalidation is in the queue
  };
  struct Window {
    ibv_mw* handle = nullptr;
    uint32_t key = 0;
    State state = State::kFree;
  };

  bool make(Window& window) noexcept;

  VerbsParts& parts_;
  ChannelParts& channel_;
  Window windows_[kCount];
  uint32_t next_exposure_ = 0;  // where the next search begins
  uint32_t given_up_count_ = 0;
  uint32_t invalidations_out_ = 0;
};

}  // namespace bedplate
