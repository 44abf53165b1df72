// An I/O queue pair of a drive: the datapath of one shard, and the way in for the drive's control.
//
// A drive has one for each shard that has volumes on it. Its memory, its doorbells and its
// interrupt are its own, so a request knows no other shard and takes no lock. One thread, the
// control's (NvmeController), does what concerns the whole drive (starts, aborts, resets, its end);
// it never touches a queue that a shard may use. They meet in a few words:
//
//   wanted    what the control wants of the pair, with a number that is new each time
//   reached   the last of these that the pair's shard has carried out
//   late      a command that the control is asked to abort
//   stuck     a command was late twice: the control is asked for a reset
//
// So a reset is: all pairs are wanted closed, and begin nothing more; once all have reached that
// the controller is disabled; once it is (or is kept from memory) all are wanted ended, and each
// shard ends what it had outstanding, once, with EIO; once all have reached that the controller is
// enabled, the queues are made anew, and all are wanted open. A drive that disappears is wanted
// ended at once, and let go of when all have reached it: no register is written to after that.
//
// Invariants: 1. Each wish that is reached was wanted, and is never wanted again: no answer is
// stale (has_followed; want). 2. A command ends once: by its completion, or when the pair is ended.
// 3. Nothing is submitted unless it is open (NvmeIo::begin). And is_valid(), which the shard looks
// at around what it does: 4. Operations are taken while open was reached last, and at no other
// time. 5. If ended was reached last, nothing is outstanding, late or stuck. 6. A late command is
// under way, and has its second chance.
// Threads: that of the functions' headings, which assert it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/cache_line.h"
#include "platform/counter.h"
#include "transport/loop/event_loop.h"
#include "transport/nvme/nvme_io_datapath.h"

namespace bedplate {

// Written by the pair's shard.
struct alignas(kCacheLineBytes) NvmeQueueCounters {
  Counter commands;
  Counter commands_outstanding;
  Counter commands_peak;  // the most that were outstanding at once
  Counter errors;         // commands that the controller has failed, or that no answer came for
  Counter timeouts;
  Counter bad_completions;
  Counter interrupts;
};

class NvmeQueuePair {
 public:
  enum class Phase : uint32_t {
    kEnded,  // as made: nothing is outstanding, and its memory is as new
    kOpen,
    kClosed  // nothing is begun; what is outstanding stays so
  };
  struct Options {
    uint16_t id = 1;
    uint32_t entry_count = 0;
    uint32_t doorbell_bytes = 4;
    uint64_t timeout_ns = 0;
  };
  static constexpr uint32_t kNone = NvmeQueue::kNone;

  static uint64_t bytes_for(uint32_t entry_count) noexcept {
    return NvmeQueue::bytes_for(entry_count, true);
  }

  // Requires: as NvmeQueue::create. `counters` outlive this. Before the seal.
  void create(const Options& options, std::span<std::byte> memory, volatile std::byte* registers,
              NvmeQueueCounters& counters) noexcept;
  // The calls that tell the shard to follow(), and the control to look. Without these, as at boot
  // and in tests, one thread is both: it follows at once. Requires: has_followed().
  struct Calls {
    void (*follow)(void* context) noexcept = nullptr;  // threads: the control's
    void* follow_context = nullptr;
    void (*look)(void* context) noexcept = nullptr;  // threads: the shard's
    void* look_context = nullptr;
    // The two's loops, which outlive it.
    const EventLoop* control = nullptr;
    const EventLoop* shard = nullptr;
  };
  void set_calls(const Calls& calls) noexcept {
    BP_DCHECK(has_followed());
    calls_ = calls;
  }

  // ---- The control's ----

  // Requires: kOpen: it was ended, and the controller has its queues. kEnded: the controller is
  // disabled, or cannot reach memory.
  void want(Phase phase) noexcept;
  // Whether the shard has done what was wanted last.
  bool has_followed() const noexcept {
    BP_DCHECK(is_controls_thread());
    // Pairs with follow(): what it has done to memory is seen.
    return reached_.load(std::memory_order_acquire) == wanted_.load(std::memory_order_relaxed);
  }
  // The id of a command to be aborted, told once; kNone: there is none. The shard takes it back if
  // the command ends before.
  uint32_t take_late() noexcept {
    BP_DCHECK(is_controls_thread());
    return late_id_.exchange(kNone, std::memory_order_acquire);
  }
  bool is_stuck() const noexcept {
    BP_DCHECK(is_controls_thread());
    return is_stuck_.load(std::memory_order_acquire);
  }
  // The queue as the controller is told of it; that does not change.
  const NvmeQueue& queue() const noexcept { return io_.queue(); }

  // ---- The shard's ----

  NvmeIo& io() noexcept {
    BP_DCHECK(is_shards_thread());
    return io_;
  }
  bool has_outstanding() const noexcept {
    BP_DCHECK(is_shards_thread());
    return io_.queue().outstanding() > 0;
  }
  // Ends commands that have completed; returns how many.
  uint32_t poll(uint32_t budget, uint64_t now_ns) noexcept;
  // Does what the control wants.
  void follow() noexcept;
  // Looks for commands that are late. Returns when it is to be called again at the latest.
  uint64_t look(uint64_t now_ns) noexcept;
  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kPhaseBits = 2;
  static constexpr Phase phase_of(uint32_t wish) noexcept {
    return static_cast<Phase>(wish & ((1U << kPhaseBits) - 1));
  }
  // Numbers go round.
  static constexpr bool is_newer(uint32_t wish, uint32_t other) noexcept {
    return static_cast<int32_t>(wish - other) > 0;
  }

  bool is_controls_thread() const noexcept {
    return calls_.control == nullptr || calls_.control->is_own_thread();
  }
  bool is_shards_thread() const noexcept {
    return calls_.shard == nullptr || calls_.shard->is_own_thread();
  }
  void publish() noexcept;
  void tell_control() noexcept;

  NvmeIo io_;
  uint64_t timeout_ns_ = 0;
  NvmeQueueCounters* counters_ = nullptr;
  Calls calls_;
  // On a line apart from what the shard writes all the time. The number of the wish, then the
  // phase.
  alignas(kCacheLineBytes) std::atomic<uint32_t> wanted_{0};
  std::atomic<uint32_t> reached_{0};
  std::atomic<uint32_t> late_id_{kNone};
  std::atomic<bool> is_stuck_{false};
};

}  // namespace bedplate
