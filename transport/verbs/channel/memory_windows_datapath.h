// The memory windows of one peer. A window opens memory to this peer alone, until its loan ends or
// the exposure is withdrawn.
//
// A bind request goes before the message that carries the key. The memory is closed when the
// invalidation has ended. If a bind or an invalidation was flushed, the window's key is unknown:
// such windows are made anew while the connection is down. The window of a loan has the loan's
// number as its index; the windows of exposures follow.
//
// A part of VerbsEndpoint. Without windows (VerbsParts::uses_windows) none can be bound. Threads:
// the shard's.
//
// Invariants: 1. A window that is not free exists. 2. given_up_count_ counts the windows in
// kGivenUp. 3. invalidations_out_ counts the invalidations in the queue, and, while the connection
// lives, the windows in kClosing. (is_valid)
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
  // Requires: the queue pair of the windows still exists (device_quirks.h).
  ~MemoryWindows();

  // Makes all windows, if they are used. Before the seal; once. Errors: the device's.
  Result<void> create();
  // The connection is over: makes anew each window that is not free, and those that are missing.
  // While a window is missing its loan is refused; the end of the next connection tries again.
  void renew() noexcept;

  bool has(uint32_t index) const noexcept { return windows_[index].handle != nullptr; }
  bool is_free(uint32_t index) const noexcept { return windows_[index].state == State::kFree; }
  // Whether the window is given up, and the device has not closed it yet.
  bool is_ending(uint32_t index) const noexcept {
    return windows_[index].state == State::kGivenUp || windows_[index].state == State::kClosing;
  }
  // Whether the window exists, and one region of the pool holds the memory.
  bool can_bind(uint32_t index, std::span<const std::byte> memory) const noexcept;
  // Lists a bind request with `access` (IBV_ACCESS_REMOTE_...). Returns the remote key. Requires:
  // can_bind; the window is free; the connection may send and has room.
  uint32_t bind(uint32_t index, std::span<const std::byte> memory, unsigned access) noexcept;

  // Returns a free window for an exposure, or kNone. Takes the windows in turn, so that a key is
  // reused as late as possible.
  uint32_t next_exposure() noexcept;
  // Gives up the exposure with this key. Returns false if no exposure has it. Requires: the
  // connection is live.
  bool withdraw(uint64_t key) noexcept;

  // Marks the window: invalidate() closes it with the next batch that has space in the queue.
  // Requires: it is bound, and the connection is live.
  void give_up(uint32_t index) noexcept;
  bool has_given_up() const noexcept { return given_up_count_ > 0; }
  // Lists the invalidations of windows that are given up, as many as the queue has space for.
  // Requires: the connection may send.
  void invalidate() noexcept;
  // The window's invalidation has ended. Returns true if the window is closed and free again; false
  // if the invalidation failed, which ends the connection.
  bool end_invalidation(uint32_t index, Outcome outcome) noexcept;
  uint32_t invalidations_out() const noexcept { return invalidations_out_; }

  bool is_valid() const noexcept;

 private:
  enum class State : uint8_t {
    kFree,
    kBound,
    kGivenUp,  // its invalidation is not listed yet
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
