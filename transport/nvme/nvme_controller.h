// An NVMe controller: opens its queues, and starts it again after a failure.
//
// This is the control of a drive. It has the registers and the admin queue, on one thread.
// Operations go through the I/O queue pairs, each on a shard of its own. nvme_queue_pair_datapath.h
// says how control and shards work together.
//
// It is a state machine that never waits: look() makes one step if it can, and returns the time of
// the next call. So boot, which may wait, and a shard, which may not, drive it in the same way. A
// reset is the same as a start. A command without a completion ends only once the controller is
// disabled, or has no access to memory (NvmePort::allow_dma): until then the controller may still
// write to the command's buffers.
//
//     start, reset:   kDisabling: shards close their pairs; clear CC.EN, wait for CSTS.RDY = 0;
//                     shards end their commands
//                     kEnabling: set up the admin queue and CC.EN, wait for CSTS.RDY = 1
//                     kSettingUp: admin commands, one after the other (Step)
//     kReady:         poll the admin queue, abort late commands, read the health log;
//                     a fatal status, or a command that stays late: reset
//     kFailed:        the controller is gone, or a start failed: it has no access to memory, and
//                     commands end with EIO; a reset after NvmeOptions::timeout_ns, unless create()
//                     has found it unsuitable
//     shut_down():    kShuttingDown, then kClosed
//
// A late command is aborted. If it is late again, or an admin command is late, the controller is
// reset. During a reset operations answer EIO. If the reset fails, they still answer EIO, and the
// next reset begins after NvmeOptions::timeout_ns.
//
// This code does not know VFIO: in a test a page of memory plays the controller.
//
// Invariants, checked by is_valid() around all changes of state: 1. The wanted phase of the pairs
// is open exactly in kReady (never, if is_only_identified); closed or ended in kDisabling and
// kShuttingDown; otherwise ended. 2. The controller is told to stop only after all shards have
// followed. 3. From kEnabling until kReady no shard has an outstanding command. 4. The only admin
// commands under way are the step's and one abort. There are none in the states in which the
// controller may not answer (kEnabling, kFailed, kClosed). 5. The step's namespace and queue exist.
// 6. The state counter equals the state. Checked elsewhere: 7. Only allowed changes of state
// happen. (enter) 8. Once it is closed the control accesses no register. (NvmeRegisters)
// Threads: one at a time; after the start, the shard that has the control.
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

// The access to the controller: its registers, and its right to memory.
class NvmePort {
 public:
  virtual ~NvmePort() = default;
  // Lets the controller read and write memory, or forbids it.
  virtual void allow_dma(bool is_allowed) noexcept = 0;

  volatile std::byte* registers = nullptr;
  uint64_t registers_bytes = 0;
  uint32_t interrupt_count = 1;  // the pair with index N has interrupt N
};

struct NvmeOptions {
  uint32_t queue_entries = 128;  // of each I/O queue, if the controller supports so many
  // The time limit of each command, and of a shutdown. After a failed reset, also the pause before
  // the next one.
  uint64_t timeout_ns = 10 * kNsPerSecond;
  std::optional<bool> has_write_cache = {};  // nothing: the drive's setting is kept
  std::vector<uint32_t> namespaces = {1};    // their ids; at least one
  bool is_only_identified = false;  // it is ready once it is identified; it has no I/O queues
};

class NvmeController {
 public:
  enum class State : uint8_t {
    kDisabling,
    kEnabling,
    kSettingUp,  // admin commands, one after the other
    kReady,
    kFailed,  // until the next reset
    kShuttingDown,
    kClosed  // final
  };
  static constexpr char kStateWords[] =
      "stopping|starting|setting-up|ready|failed|shutting-down|closed";

  static constexpr uint64_t kNever = ~uint64_t{0};
  static constexpr uint64_t kHealthIntervalNs = 60 * kNsPerSecond;

  // The bytes of the pool that it needs beside its queue pairs.
  static uint64_t bytes_for() noexcept;

  // Begins the start, with a queue pair for each of `queues`, or for fewer: the controller may
  // grant fewer, and each pair needs an interrupt and doorbells of `port`. If the controller is
  // unsuitable, the state is kFailed at once, and stays so.
  // Requires: `memory` has bytes_for(), zeroed and page aligned; `queues` is not empty, unless
  // is_only_identified; options.namespaces is not empty; the registers of `port` reach to the
  // doorbells. `port`, all memory and all counters outlive this. Called once, before the seal.
  void create(NvmePort& port, std::span<std::byte> memory, std::span<const NvmeQueueMemory> queues,
              const NvmeOptions& options, NvmeCounters& counters, uint64_t now_ns);

  // Makes the next step. Returns the latest time of the next call; kNever: none is needed.
  uint64_t look(uint64_t now_ns) noexcept;

  // Begins the shutdown; later calls of look() carry it out. The shards begin no more commands, the
  // controller shuts down, then commands that are still outstanding end with EIO, and it closes.
  // If it is not ready, or is gone, it closes at once.
  void shut_down(uint64_t now_ns) noexcept;
  // Closes at once: the control accesses no register any more. The shards may access theirs until
  // is_let_go_of(). Requires: it is not closed.
  void give_up(NvmeProblem problem) noexcept;

  // The number of pairs. It and the pairs are final once the controller was ready.
  uint32_t queue_count() const noexcept { return pairs_.count(); }
  NvmeQueuePair& queue_pair(size_t index) noexcept { return pairs_.at(index); }
  State state() const noexcept { return state_; }
  // An estimate of the longest start, for reports of progress. It counts timeout_ns once for all
  // admin commands together. Each of them may take as long, so a start can take longer.
  uint64_t ready_max_ns() const noexcept { return 2 * ready_ns_ + options_.timeout_ns; }
  // The latest problem, also after it is over; kNone: there was none. Its detail is valid only for
  // those problems that have one (NvmeProblem).
  NvmeProblem problem() const noexcept { return problem_; }
  uint32_t problem_detail() const noexcept { return problem_detail_; }
  // Whether it is closed, and no shard uses a register any more.
  bool is_let_go_of() const noexcept { return state_ == State::kClosed && pairs_.have_followed(); }
  // The namespace options.namespaces[index]. Its sizes are valid once the controller was ready.
  const NvmeNamespace& space(size_t index) const noexcept { return identity_.space(index); }

  bool is_valid() const noexcept;

 private:
  // The admin commands of a start, in their order, and those of the health check.
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
  uint64_t ready_ns_ = 0;     // the time limit of CSTS.RDY after a change of CC.EN
  uint64_t deadline_ns_ = 0;  // of this state; in kFailed, the time of the next reset
  uint64_t health_ns_ = 0;    // when the next health check is due
  bool is_stopping_ = false;  // the controller was told to stop, or to shut down
  NvmeQueue admin_;
  NvmeQueuePairs pairs_;
  NvmeAborts aborts_;
  NvmeIdentity identity_;
  NvmeHealth health_;
  std::byte* data_ = nullptr;  // a page for the data of the step's command
  StepCall step_call_;
  uint32_t queue_index_ = 0;  // of the step
  uint32_t space_index_ = 0;  // of the step
  bool is_suitable_ = false;  // create() has found nothing against it
  bool was_ready_ = false;
};

}  // namespace bedplate
