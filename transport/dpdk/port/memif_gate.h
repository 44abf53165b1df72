// Keeps bursts away from the memory of a memif's peer while the driver maps and unmaps it.
//
// The driver connects and disconnects on EAL's own thread: it maps and unmaps the peer's memory,
// and closes descriptors, even while a shard is inside a burst that uses them. So each queue of a
// memif port has a gate. A shard enters it for each burst, and never waits: a closed gate means no
// frames for now. EAL's thread waits until no burst is in progress. A program with DPDK is linked
// such that the driver's calls come here first (DPDK_WRAPS in scripts/mk/flags.mk).
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/assert.h"

namespace bedplate {

// Threads: its shard's; is_inside(): any; constructor and destructor: the main thread, while no
// shard runs. Cost of a burst: one locked instruction.
class MemifGate {
 public:
  MemifGate() noexcept;
  ~MemifGate();
  MemifGate(const MemifGate&) = delete;
  MemifGate& operator=(const MemifGate&) = delete;

  // Returns whether a burst may begin; if so, the caller ends it with leave().
  bool enter() noexcept {
    // Sequentially consistent with close_memif_gates(): either this sees the gate closed, or that
    // sees the burst.
    const bool was_inside = is_inside_.exchange(true, std::memory_order_seq_cst);
    BP_ASSERT(!was_inside && "one thread has it, and one burst at a time");
    if (closed_count.load(std::memory_order_seq_cst) == 0) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() noexcept {
    BP_DCHECK(is_inside());
    is_inside_.store(false, std::memory_order_release);
  }
  bool is_inside() const noexcept { return is_inside_.load(std::memory_order_seq_cst); }

 private:
  friend void close_memif_gates() noexcept;
  friend void open_memif_gates() noexcept;
  static std::atomic<uint32_t> closed_count;

  std::atomic<bool> is_inside_{false};
};

// Closes all gates, and waits until no burst is in progress. No burst begins until every caller has
// opened the gates again. Threads: EAL's, and the main thread.
void close_memif_gates() noexcept;
void open_memif_gates() noexcept;

}  // namespace bedplate
