// An NVMe controller: from its registers to open queues, and back there when it has failed.
//
// This is the control of a drive: its registers and its admin queue, on one thread. Operations go
// by the pairs of I/O queues, each on a shard of its own (nvme_queue_pair_datapath.h, which says
// how the two work together).
//
// A state machine that never waits: look() goes one step if there is one to go, and returns when it
// wants to be called again. So boot, which may wait, and a shard, which may not, drive it alike,
// and a reset is a start. Outstanding commands end only when the controller is disabled, or is kept
// from memory (NvmePort::allow_dma): no buffer is given back that it may still write to.
//
// Late commands are aborted; even later ones, and late admin commands, mean a reset. During a
// reset, operations answer EIO; also when the reset fails, and then it is tried again after a
// while.
//
// The code here does not know VFIO: in a test a page of memory plays the controller.
//
// Invariants, which is_valid() looks at, around all that changes its state: 1. Pairs are wanted
// open while it is ready, and at no other time; closed while it is being stopped or shut down;
// else ended. 2. It is told to stop once all shards have followed. 3. From the time that it is
// enabled until it is ready nothing is with any shard. 4. The only admin commands under way are the
// step's, and an abort; there are none while it may not answer (it is being enabled, has failed, or
// is closed). 5. The step's namespace and queue are there. 6. The counter of its state is its
// state. And enter(): 7. A state follows one that it may follow. And NvmeRegisters: 8. Once it is
// closed no register is used.
// Threads: one at a time; after the start the shard's that has the control.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "platform/units.h"
#include "transport/nvme/nvme_aborts.h"
#include "transport/nvme/nvme_counters.h"
#include "transport/nvme/nvme_health.h"
#include "transport/nvme/nvme_identity.h"
#include "transport/nvme/nvme_problem.h"
#include "transport/nvme/nvme_queue_pairs.h"
#include "transport/nvme/nvme_registers.h"

namespace bedplate {

// The way to the controller.
class NvmePort {
 public:
  virtual ~NvmePort() = default;
  // Whether the controller may read and write memory at all.
  virtual void allow_dma(bool is_allowed) noexcept = 0;

  volatile std::byte* registers = nullptr;
  uint64_t registers_bytes = 0;
  uint32_t interrupt_count = 1;  // queue pair N has interrupt N
};

struct NvmeOptions {
  uint32_t queue_entries = 128;  // of each I/O queue, if the controller takes so many
  uint64_t timeout_ns = 10 * kNsPerSecond;
  std::optional<bool> has_write_cache = {};  // nothing: as the drive has it
  std::vector<uint32_t> namespaces = {1};
  bool is_only_identified = false;  // it is ready once it is known; it has no I/O queue
};

class NvmeController {
 public:
  enum class State : uint8_t {
    kDisabling,
    kEnabling,
    kSettingUp,  // admin commands, one after the other
    kReady,
    kFailed,  // until it is tried again
    kShuttingDown,
    kClosed  // for ever
  };
  static constexpr char kStateWords[] =
      "stopping|starting|setting-up|ready|failed|shutting-down|closed";

  static constexpr uint64_t kNever = ~uint64_t{0};
  static constexpr uint64_t kHealthIntervalNs = 60 * kNsPerSecond;

  // The bytes of the pool that it takes beside its queue pairs.
  static uint64_t bytes_for() noexcept;

  // Begins to start it, with a queue pair for each of `queues`, or for as many as the controller
  // grants. Requires: `memory` has bytes_for(), zeroed, aligned to a page; there are queues, unless
  // it is identified only; `port` reaches beyond the doorbells' beginning. All outlive this. Before
  // the seal.
  void create(NvmePort& port, std::span<std::byte> memory, std::span<const NvmeQueuePlace> queues,
              const NvmeOptions& options, NvmeCounters& counters, uint64_t now_ns);

  // Goes on. Returns when it is to be called again at the latest.
  uint64_t look(uint64_t now_ns) noexcept;

  // Ends outstanding commands, tells the drive to shut down in order, and is closed then.
  void shut_down(uint64_t now_ns) noexcept;
  // It is closed at once, and its registers are not looked at any more.
  void give_up(NvmeProblem problem) noexcept;

  // Right once it was ready; from then on it does not change.
  uint32_t queue_count() const noexcept { return pairs_.count(); }
  NvmeQueuePair& queue_pair(size_t index) noexcept { return pairs_.at(index); }
  State state() const noexcept { return state_; }
  // How long it may take until it is ready or has failed.
  uint64_t ready_max_ns() const noexcept { return 2 * ready_ns_ + options_.timeout_ns; }
  NvmeProblem problem() const noexcept { return problem_; }
  uint32_t problem_detail() const noexcept { return problem_detail_; }
  // Closed, and no shard uses a register any more.
  bool is_let_go_of() const noexcept { return state_ == State::kClosed && pairs_.have_followed(); }
  // In the order of the options. Its numbers are right once it was ready.
  const NvmeNamespace& space(size_t index) const noexcept { return identity_.space(index); }

  bool is_valid() const noexcept;

 private:
  // The admin commands of a start, in their order, and of a look at the drive's health.
  enum class Step : uint8_t {
    kController,
    kNamespace,
    kWriteCache,
    kQueueCount,
    kCompletionQueue,
    kSubmissionQueue,
    kHealth,
    kGrowth,
    kNone
  };
  struct StepCall : NvmeCall {
    NvmeController* controller = nullptr;
  };

  bool are_pairs_valid() const noexcept;
  bool is_step_valid() const noexcept;

  void enter(State state) noexcept;
  void note_problem(NvmeProblem problem) noexcept;
  void begin_reset() noexcept;
  void stop(uint32_t configuration, uint64_t within_ns) noexcept;
  void look_at_stop(uint32_t status, bool is_late) noexcept;
  void enable() noexcept;
  void fail(NvmeProblem problem, uint32_t detail = 0) noexcept;
  void end_admin() noexcept;
  void close() noexcept;
  void poll_admin() noexcept;

  void begin_step(Step step) noexcept;
  static void step_completed(NvmeCall& call, uint16_t status, uint32_t result) noexcept;
  void step_ended(uint16_t status, uint32_t result) noexcept;
  void after_namespace() noexcept;
  bool know_queue_count(uint32_t result) noexcept;
  void become_ready() noexcept;

  uint64_t watch(uint32_t status) noexcept;
  NvmeProblem what_is_late() const noexcept;

  NvmePort* port_ = nullptr;
  NvmeRegisters registers_;
  NvmeOptions options_;
  NvmeCounters* counters_ = nullptr;
  State state_ = State::kDisabling;
  Step step_ = Step::kNone;
  NvmeProblem problem_ = NvmeProblem::kNone;
  uint32_t problem_detail_ = 0;
  uint64_t now_ns_ = 0;       // of the last look
  uint64_t ready_ns_ = 0;     // how long a change of state may take
  uint64_t deadline_ns_ = 0;  // of this state
  uint64_t health_ns_ = 0;    // when the next look at its health is due
  bool is_stopping_ = false;  // it was told to stop, or to shut down
  NvmeQueue admin_;
  NvmeQueuePairs pairs_;
  NvmeAborts aborts_;
  NvmeIdentity identity_;
  NvmeHealth health_;
  std::byte* data_ = nullptr;  // a page, of the step's command
  StepCall step_call_;
  uint32_t queue_index_ = 0;  // of the step
  uint32_t space_index_ = 0;  // of the step
  bool was_ready_ = false;
};

}  // namespace bedplate
