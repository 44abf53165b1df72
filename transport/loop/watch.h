// Watching any descriptor that poll(2) knows, on a shard: eventfd, timerfd, signalfd, pipes,
// sockets. StreamSockets takes a Watch (start_watching) and calls it from poll().
//
// Level-triggered, and the same in both backends: while the descriptor is ready the watch is
// called, at least once in each further poll that finds it so, until the callee has taken all there
// is or stops watching. So bytes that a callback left behind are not lost, and a callback that
// takes nothing keeps its shard awake. A callback may come although there is nothing (any more):
// another callback may have taken it. A descriptor that is read should not block.
#pragma once

#include <cstdint>
#include <memory>

#include "alloc/heap_owner.h"

namespace bedplate {

// Ownership: the caller's, at the same address while it is watched; as is `fd`, which stays open
// until stop_watching has returned. Both may go right after. A descriptor closed earlier harms
// nobody else, but its watch may or may not be called once more, and its file may be closed later.
struct Watch {
  int fd = -1;
  // As poll(2) names them: POLLIN, POLLOUT, POLLPRI, POLLRDHUP. POLLERR and POLLHUP come unasked.
  uint32_t events = 0;
  // Its owner knows that `fd` is an open socket: the kernel is not asked whether it is a file. For
  // a watch that starts and stops while traffic runs.
  bool is_socket = false;
  // Called on the shard, from poll(), never from within start_watching or stop_watching; not once
  // more after stop_watching. `events`: those that are true. It may stop, free and start any
  // watch, its own too. POLLNVAL: the kernel watches this descriptor no longer (it was closed); the
  // watch was stopped before the call.
  void (*ready)(void* context, uint32_t events) noexcept = nullptr;
  void* context = nullptr;

  bool is_watched() const noexcept { return slot != kNoSlot; }

  static constexpr uint32_t kNoSlot = ~uint32_t{0};
  uint32_t slot = kNoSlot;  // the backend's
  HeapOwner asker = {};     // the backend's: who allocated when it began
};

// The watches of one shard by numbers that are never used twice: an event that was on its way when
// its watch stopped names no watch, so the watch can be freed without waiting for it.
// Threads: the shard's.
class WatchTable {
 public:
  // Before the seal: it allocates.
  void create(uint32_t count_max);

  // Returns 0, or an errno value: EBADF; EINVAL: no events that can be asked for, or no callback;
  // EPERM: a file or directory, which is always ready; EEXIST: a descriptor watched already;
  // ENOSPC: as many as there may be. Requires: not watched. Cost: one system call; none if
  // `watch.is_socket`, and then no EBADF or EPERM.
  int insert(Watch& watch) noexcept;
  void remove(Watch& watch) noexcept;

  // Names a watch until it is removed; the low three bits are 0.
  uint64_t key_of(const Watch& watch) const noexcept;
  // nullptr: it was removed.
  Watch* find(uint64_t key) const noexcept;

  // Whether the kernel has a request for it; for a backend whose requests end with each event.
  bool& is_armed(const Watch& watch) noexcept { return slots_[watch.slot].is_armed; }

 private:
  struct Slot {
    Watch* watch = nullptr;
    uint32_t generation = 0;
    bool is_armed = false;
  };
  std::unique_ptr<Slot[]> slots_;
  uint32_t slot_count_ = 0;
};

}  // namespace bedplate
