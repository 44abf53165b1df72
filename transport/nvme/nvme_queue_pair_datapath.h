// An I/O queue pair of a drive: the data path of one shard, and its interface to the drive's
// control.
//
// A drive has one for each shard with volumes on it. The pair has memory, doorbells and an
// interrupt of its own, so a request involves no other shard and takes no lock. One thread, the
// control's (NvmeController), handles the whole drive: starts, aborts, resets and the shutdown. It
// never touches a queue that a shard may use. Control and shard communicate by these words:
//
//   wanted    the phase that the control wants of the pair, with a new number each time
//   reached   the last wish that the pair's shard has carried out
//   late      the id of a command that the control is asked to abort: until the command ends, or,
//             once the control has taken it, until the abort ends. No other command gets the id.
//   stuck     a command was late twice: the control is asked for a reset
//
// A reset:
//   control: wants all pairs kClosed            shards: begin no more commands
//   control: disables the controller, or cuts it off from memory
//   control: wants all pairs kEnded             shards: end outstanding commands, once, with EIO
//   control: enables the controller, creates the queues
//   control: wants all pairs kOpen              shards: take operations again
// The control makes each step only after all shards have reached the wish before it. If the drive
// fails or the kernel takes it back, the control cuts it off from memory, and wants kEnded at once.
// Shards that have reached kEnded write no register, so a drive that was taken back is released
// when all have reached it.
//
// Invariants: 1. Each reached wish was wanted, and no later wish has its number, so no answer is
// stale. (has_followed; want) 2. A command ends once: by its completion, or when the pair is ended.
// 3. Commands are submitted only while it is open. (NvmeIo::begin) Checked by is_valid() around the
// shard's work: 4. It takes operations exactly while kOpen was reached last. 5. If kEnded was
// reached last, nothing is outstanding, late or stuck. 6. The id of a late command is
// withheld.
// Threads: as the section headings say; all functions but queue() and is_valid() assert it.
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

// Written by the shard of the pair.
struct alignas(kCacheLineBytes) NvmeQueueCounters {
  Counter commands;
  Counter commands_outstanding;
  Counter commands_peak;  // the highest number outstanding so far
  Counter errors;         // commands that failed, or got no answer
  Counter timeouts;
  Counter bad_completions;
  Counter interrupts;
};

class NvmeQueuePair {
 public:
  enum class Phase : uint32_t {
    kEnded,  // as made: nothing is outstanding, and its memory is in its initial state
    kOpen,
    kClosed  // begins no commands; outstanding ones may still complete
  };
  struct Options {
    uint16_t id = 1;
    uint32_t entry_count = 0;
    uint32_t doorbell_bytes = 4;
    uint64_t timeout_ns = 0;  // of a command, before it is late; a late one gets it once more
  };
  static constexpr uint32_t kNone = NvmeQueue::kNone;

  static uint64_t bytes_for(uint32_t entry_count) noexcept {
    return NvmeQueue::bytes_for(entry_count, true);
  }

  // Requires: as for NvmeQueue::create. `counters` outlives this. Before the seal.
  void create(const Options& options, std::span<std::byte> memory, volatile std::byte* registers,
              NvmeQueueCounters& counters) noexcept;
  // The calls that tell the shard to follow(), and the control to look. Without them, as at boot
  // and in tests, one thread is both, and want() follows at once.
  struct Calls {
    void (*follow)(void* context) noexcept = nullptr;  // threads: the control's
    void* follow_context = nullptr;
    void (*look)(void* context) noexcept = nullptr;  // threads: the shard's
    void* look_context = nullptr;
    // The loops of both, which outlive it.
    const EventLoop* control = nullptr;
    const EventLoop* shard = nullptr;
  };
  // Requires: has_followed().
  void set_calls(const Calls& calls) noexcept {
    BP_DCHECK(has_followed());
    calls_ = calls;
  }

  // ---- The control's ----

  // Records the wish, and tells the shard. Requires: for kOpen, the pair has followed kEnded, and
  // the controller has its queues; for kEnded, the controller is disabled, or has no access to
  // memory.
  void want(Phase phase) noexcept;
  // Whether the shard has carried out the last wish.
  bool has_followed() const noexcept {
    BP_DCHECK(is_controls_thread());
    // Pairs with follow(): the shard's writes to memory are visible.
    return reached_.load(std::memory_order_acquire) == wanted_.load(std::memory_order_relaxed);
  }
  // The id of a command to abort, returned once; kNone: there is none. The shard withdraws the id
  // if the command ends before this call. Afterwards it gives the id to no other command until
  // end_abort().
  uint32_t take_late() noexcept;
  // The abort of the id that take_late() returned has ended. Does nothing if the pair was ended
  // meanwhile.
  void end_abort() noexcept;
  // Whether a command was late twice since the pair was last ended.
  bool is_stuck() const noexcept {
    BP_DCHECK(is_controls_thread());
    return is_stuck_.load(std::memory_order_acquire);
  }
  // The queue, for its creation on the controller; its addresses and size are constant.
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
  // NvmeIo::poll(). Also withdraws the late command if it has ended.
  uint32_t poll(uint32_t budget, uint64_t now_ns) noexcept;
  // Carries out the control's last wish.
  void follow() noexcept;
  // Looks for late commands, and publishes the counters. Returns the latest time of the next call.
  uint64_t look(uint64_t now_ns) noexcept;
  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kPhaseBits = 2;
  static constexpr uint32_t kTaken = uint32_t{1} << 16;  // set in late_id_ by the control
  static constexpr Phase phase_of(uint32_t wish) noexcept {
    return static_cast<Phase>(wish & ((1U << kPhaseBits) - 1));
  }
  // Compares numbers that wrap.
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
  void settle_late() noexcept;

  NvmeIo io_;
  uint64_t timeout_ns_ = 0;
  NvmeQueueCounters* counters_ = nullptr;
  Calls calls_;
  // The wish: its phase in the low kPhaseBits, its number above them. It begins a cache line that
  // is apart from the shard's frequent writes.
  alignas(kCacheLineBytes) std::atomic<uint32_t> wanted_{0};
  std::atomic<uint32_t> reached_{0};
  std::atomic<uint32_t> late_id_{kNone};  // an id, perhaps with kTaken; kNone: no abort is wanted
  std::atomic<bool> is_stuck_{false};
};

}  // namespace bedplate
