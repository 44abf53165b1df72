// Watches any descriptor that poll(2) knows, on a shard: eventfd, timerfd, signalfd, pipes,
// sockets. StreamSockets takes a Watch (start_watching) and calls it from poll().
//
// Watches are level-triggered in both backends: while the descriptor is ready, each further poll
// that finds it so calls the watch at least once, until the callback has taken everything or stops
// watching. So bytes that a callback leaves behind are not lost, and a callback that takes nothing
// keeps its shard awake. A callback may find nothing to take, because another callback took it. A
// descriptor that is read should be non-blocking.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "alloc/heap_owner.h"

namespace bedplate {

class ShardPlan;

// Ownership: the caller's, at the same address while it is watched. `fd` is the caller's too, and
// stays open until stop_watching has returned; right after, both may be freed. Closing `fd` earlier
// harms no other watch, but the kernel may close the file later, and the watch may be called once
// more.
struct Watch {
  int fd = -1;
  // As poll(2) names them: POLLIN, POLLOUT, POLLPRI, POLLRDHUP. POLLERR and POLLHUP come unasked.
  uint32_t events = 0;
  // The owner states that `fd` is an open socket, so start_watching does not ask the kernel. For a
  // watch that starts and stops while traffic runs.
  bool is_socket = false;
  // Called on the shard, from poll(), never from within start_watching or stop_watching, and never
  // after stop_watching. `events`: those that are true. The callback may stop, free and start any
  // watch, its own too. POLLNVAL (only with io_uring): the kernel watches the descriptor no longer,
  // as after it was closed; the watch was stopped before the call. With epoll nobody is told.
  void (*ready)(void* context, uint32_t events) noexcept = nullptr;
  void* context = nullptr;

  bool is_watched() const noexcept { return slot != kNoSlot; }

  static constexpr uint32_t kNoSlot = ~uint32_t{0};
  uint32_t slot = kNoSlot;  // the backend's
  HeapOwner asker = {};     // the backend's: the heap owner when it began
};

// The watches of one shard, under keys that are never reused: an event in flight when its watch
// stops finds no watch, so the watch can be freed without waiting for the event. Threads: the
// shard's.
class WatchTable {
 public:
  // Before the seal: it allocates. `plan`: that of the shard, with `count_max` watches in all;
  // nullptr: the table is no shard's. It outlives this.
  void create(uint32_t count_max, ShardPlan* plan = nullptr);

  // Returns 0, or an errno value: EBADF; EINVAL: events that cannot be asked for, none at all, or
  // no callback; EPERM: a file or directory, which is always ready; EEXIST: the descriptor is
  // already watched; ENOSPC: the table is full, which is logged if it has a plan. Requires: not
  // watched. Cost: a look at each slot, and a system call. If `watch.is_socket`: no system call,
  // and so no EBADF or EPERM.
  int insert(Watch& watch) noexcept;
  // Requires: watched, as for key_of() and is_armed().
  void remove(Watch& watch) noexcept;

  // The key of a watch until it is removed; the low three bits are 0.
  uint64_t key_of(const Watch& watch) const noexcept;
  // Returns nullptr if the watch was removed.
  Watch* find(uint64_t key) const noexcept;

  // Whether the kernel holds a request for it; for a backend whose requests end with each event.
  bool& is_armed(const Watch& watch) noexcept { return slots_[watch.slot].is_armed; }

 private:
  struct Slot {
    Watch* watch = nullptr;
    uint32_t generation = 0;
    bool is_armed = false;
  };
  std::array<uint32_t, kHeapOwnerCountMax> counts() const noexcept;
  int refuse() noexcept;

  std::unique_ptr<Slot[]> slots_;
  uint32_t slot_count_ = 0;
  ShardPlan* plan_ = nullptr;
};

}  // namespace bedplate
