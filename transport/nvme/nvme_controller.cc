#include "transport/nvme/nvme_controller.h"

#include <algorithm>

#include "platform/assert.h"
#include "transport/nvme/nvme_prp_datapath.h"

namespace bedplate {
namespace {

constexpr uint32_t kAdminEntries = 16;
// The time between two looks at a change of state, and the least time limit of such a change.
constexpr uint64_t kStepNs = kNsPerMs;
constexpr uint64_t kReadyUnitNs = 500 * kNsPerMs;
constexpr uint64_t kWatchIntervalNsMax = kNsPerSecond;

using State = NvmeController::State;

constexpr uint32_t bit_of(State state) noexcept { return 1U << static_cast<uint32_t>(state); }

// The states that may follow `state`, as bits.
constexpr uint32_t followers_of(State state) noexcept {
  constexpr uint32_t kEnds = bit_of(State::kFailed) | bit_of(State::kClosed);
  switch (state) {
    case State::kDisabling: return bit_of(State::kDisabling) | bit_of(State::kEnabling) | kEnds;
    case State::kEnabling: return bit_of(State::kSettingUp) | kEnds;
    case State::kSettingUp: return bit_of(State::kReady) | kEnds;
    case State::kReady: return bit_of(State::kDisabling) | bit_of(State::kShuttingDown) | kEnds;
    case State::kFailed: return bit_of(State::kDisabling) | kEnds;
    case State::kShuttingDown: return kEnds;
    case State::kClosed: return 0;
  }
  return 0;
}

// Fills in `command` to create a queue, by its number.
void describe_queue(nvme::Command* command, nvme::AdminOpcode opcode,
                    const NvmeQueue& queue) noexcept {
  command->opcode = opcode;
  command->prp1 = reinterpret_cast<uintptr_t>(
      opcode == nvme::kCreateCompletion ? queue.completions() : queue.submissions());
  command->word10 = queue.id() | (queue.entry_count() - 1) << 16;
}

}  // namespace

uint64_t NvmeController::bytes_for() noexcept {
  return kNvmePageBytes + NvmeQueue::bytes_for(kAdminEntries, false);
}

// ---- Invariants ---------------------------------------------------------------------------------

bool NvmeController::is_valid() const noexcept {
  if (counters_->state.read() != static_cast<uint64_t>(state_)) return false;
  return are_pairs_valid() && is_step_valid() && admin_.is_valid();
}

// Checks invariants 1, 2 and 3.
bool NvmeController::are_pairs_valid() const noexcept {
  using Phase = NvmeQueuePair::Phase;
  switch (state_) {
    case State::kReady:
      return was_ready_ && (pairs_.phase() == Phase::kOpen) == !options_.is_only_identified;
    case State::kDisabling:
    case State::kShuttingDown:
      return pairs_.phase() != Phase::kOpen &&
             (pairs_.phase() == Phase::kEnded || !is_stopping_ || pairs_.have_followed());
    case State::kEnabling:
    case State::kSettingUp: return pairs_.phase() == Phase::kEnded && pairs_.have_followed();
    case State::kFailed:
    case State::kClosed: return pairs_.phase() == Phase::kEnded;
  }
  return false;
}

// Checks invariants 4 and 5.
bool NvmeController::is_step_valid() const noexcept {
  const bool has_step = step_ != Step::kNone;
  if (admin_.outstanding() != uint32_t{has_step} + uint32_t{aborts_.is_in_progress()}) return false;
  switch (state_) {
    case State::kEnabling:
    case State::kFailed:
    case State::kClosed: return !has_step && !aborts_.is_in_progress();
    case State::kSettingUp:
      if (!has_step || aborts_.is_in_progress()) return false;
      break;
    default: break;
  }
  const bool has_space = step_ == Step::kNamespace || step_ == Step::kGrowth;
  if (has_space && space_index_ >= identity_.space_count()) return false;
  const bool has_queue = step_ == Step::kCompletionQueue || step_ == Step::kSubmissionQueue;
  return !has_queue || queue_index_ < pairs_.count();
}

// ---- States -------------------------------------------------------------------------------------

void NvmeController::create(NvmePort& port, std::span<std::byte> memory,
                            std::span<const NvmeQueueMemory> queues, const NvmeOptions& options,
                            NvmeCounters& counters, uint64_t now_ns) {
  BP_ASSERT(memory.size() >= bytes_for() && !options.namespaces.empty());
  BP_ASSERT(!queues.empty() || options.is_only_identified);
  BP_ASSERT(port_ == nullptr && port.registers_bytes >= nvme::kDoorbells);
  port_ = &port;
  options_ = options;
  counters_ = &counters;
  now_ns_ = now_ns;
  registers_.open(port.registers, port.registers_bytes);
  identity_.create(options.namespaces);
  aborts_.create(counters);
  step_call_.completed = &NvmeController::step_completed;
  step_call_.controller = this;

  const uint64_t cap = registers_.read64(nvme::kCapabilities);
  ready_ns_ = std::max<uint64_t>(1, nvme::ready_units(cap)) * kReadyUnitNs;
  const uint32_t doorbell_bytes = nvme::doorbell_bytes(cap);
  const uint32_t io_entries = std::min(options.queue_entries, nvme::entry_count_max(cap));
  data_ = memory.data();
  admin_.create(0, kAdminEntries, false, memory.subspan(kNvmePageBytes), port.registers,
                doorbell_bytes);
  // Each pair has two doorbells; the admin queue's come first.
  const uint64_t doorbells = (port.registers_bytes - nvme::kDoorbells) / doorbell_bytes;
  const auto queue_count = static_cast<size_t>(std::min<uint64_t>(
      {queues.size(), port.interrupt_count, std::max<uint64_t>(doorbells / 2, 1) - 1}));
  pairs_.create(queues.first(queue_count),
                {.entry_count = std::max(io_entries, NvmeQueue::kEntryCountMin),
                 .doorbell_bytes = doorbell_bytes,
                 .timeout_ns = options.timeout_ns},
                port.registers);
  if (registers_.read32(nvme::kStatus) == nvme::kAllOnes) return fail(NvmeProblem::kGone);
  if (!nvme::has_nvm_commands(cap)) return fail(NvmeProblem::kNotNvm);
  if (nvme::page_bytes_min(cap) > kNvmePageBytes) return fail(NvmeProblem::kPageBytes);
  if (io_entries < NvmeQueue::kEntryCountMin || doorbells < 2 ||
      (queue_count == 0 && !queues.empty())) {
    return fail(NvmeProblem::kNoQueue);
  }
  is_suitable_ = true;
  begin_reset();
  BP_DCHECK_SLOW(is_valid());
}

void NvmeController::enter(State state) noexcept {
  BP_DCHECK((followers_of(state_) & bit_of(state)) != 0);
  state_ = state;
  counters_->state.set(static_cast<uint64_t>(state));
  if (state == State::kClosed) registers_.close();
}

void NvmeController::note_problem(NvmeProblem problem) noexcept {
  problem_ = problem;
  counters_->problem.set(static_cast<uint64_t>(problem));
}

void NvmeController::begin_reset() noexcept {
  if (pairs_.phase() == NvmeQueuePair::Phase::kOpen) pairs_.want(NvmeQueuePair::Phase::kClosed);
  is_stopping_ = false;
  enter(State::kDisabling);
}

// Requires: no shard submits commands any more.
void NvmeController::stop(uint32_t configuration, uint64_t within_ns) noexcept {
  BP_DCHECK(pairs_.phase() != NvmeQueuePair::Phase::kOpen && pairs_.have_followed());
  registers_.write32(nvme::kConfiguration, configuration);
  deadline_ns_ = now_ns_ + within_ns;
  is_stopping_ = true;
}

// Once the controller has stopped, all shards end their commands; then it starts anew.
void NvmeController::look_at_stop(uint32_t status, bool is_late) noexcept {
  if (!pairs_.have_followed()) return;
  if (!is_stopping_) return stop(nvme::kSettings, ready_ns_);
  if ((status & nvme::kReady) == 0) {
    if (pairs_.phase() != NvmeQueuePair::Phase::kEnded) pairs_.want(NvmeQueuePair::Phase::kEnded);
    if (pairs_.have_followed()) enable();
  } else if (is_late) {
    fail(NvmeProblem::kNotDisabled);
  }
}

// Requires: the controller is disabled, and no shard has an outstanding command.
void NvmeController::enable() noexcept {
  BP_DCHECK(pairs_.phase() == NvmeQueuePair::Phase::kEnded && pairs_.have_followed());
  end_admin();
  admin_.clear();
  port_->allow_dma(true);  // a disabled controller has forgotten its old commands
  registers_.write32(nvme::kAdminSizes, (kAdminEntries - 1) | (kAdminEntries - 1) << 16);
  registers_.write64(nvme::kAdminSubmission, reinterpret_cast<uintptr_t>(admin_.submissions()));
  registers_.write64(nvme::kAdminCompletion, reinterpret_cast<uintptr_t>(admin_.completions()));
  registers_.write32(nvme::kConfiguration, nvme::kSettings | nvme::kEnable);
  deadline_ns_ = now_ns_ + ready_ns_;
  enter(State::kEnabling);
}

void NvmeController::end_admin() noexcept {
  step_ = Step::kNone;
  admin_.fail_all();
  BP_DCHECK(admin_.outstanding() == 0 && !aborts_.is_in_progress());
}

// Without access to memory the controller cannot write to its buffers, so they can be given back.
void NvmeController::fail(NvmeProblem problem, uint32_t detail) noexcept {
  note_problem(problem);
  problem_detail_ = detail;
  port_->allow_dma(false);
  pairs_.want(NvmeQueuePair::Phase::kEnded);
  end_admin();
  deadline_ns_ = now_ns_ + options_.timeout_ns;
  enter(State::kFailed);
}

void NvmeController::give_up(NvmeProblem problem) noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(state_ != State::kClosed);  // its registers may be unmapped
  fail(problem);
  enter(State::kClosed);
}

void NvmeController::close() noexcept {
  port_->allow_dma(false);
  pairs_.want(NvmeQueuePair::Phase::kEnded);
  end_admin();
  enter(State::kClosed);
}

void NvmeController::shut_down(uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  now_ns_ = now_ns;
  if (state_ == State::kShuttingDown || state_ == State::kClosed) return;
  if (state_ != State::kReady || registers_.read32(nvme::kStatus) == nvme::kAllOnes) return close();
  pairs_.want(NvmeQueuePair::Phase::kClosed);
  is_stopping_ = false;
  enter(State::kShuttingDown);
}

uint64_t NvmeController::look(uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  now_ns_ = now_ns;
  if (state_ == State::kClosed) return pairs_.have_followed() ? kNever : now_ns + kStepNs;
  if (state_ == State::kFailed) {
    if (!is_suitable_) return kNever;
    if (now_ns < deadline_ns_) return deadline_ns_;
    if (registers_.read32(nvme::kStatus) == nvme::kAllOnes) {
      return deadline_ns_ = now_ns + options_.timeout_ns;
    }
    counters_->resets.add(1);
    begin_reset();
  }
  const uint32_t status = registers_.read32(nvme::kStatus);
  const bool is_late = now_ns >= deadline_ns_;
  if (status == nvme::kAllOnes) {
    fail(NvmeProblem::kGone);
    return deadline_ns_;
  }
  switch (state_) {
    case State::kDisabling: look_at_stop(status, is_late); break;
    case State::kEnabling:
      if ((status & nvme::kFatal) != 0) {
        fail(NvmeProblem::kFatal);
      } else if ((status & nvme::kReady) != 0) {
        enter(State::kSettingUp);
        begin_step(Step::kController);
      } else if (is_late) {
        fail(NvmeProblem::kNotReady);
      }
      break;
    case State::kSettingUp:
      poll_admin();
      if (state_ == State::kSettingUp &&
          admin_.find_overdue(now_ns - std::min(now_ns, options_.timeout_ns)) != NvmeQueue::kNone) {
        fail(NvmeProblem::kSilent);
      }
      break;
    case State::kReady: return watch(status);
    case State::kShuttingDown:
      if (!pairs_.have_followed()) break;
      if (!is_stopping_) {
        stop(nvme::kSettings | nvme::kEnable | nvme::kShutdown, options_.timeout_ns);
      } else if ((status & nvme::kShutdownMask) == nvme::kShutdownDone || is_late) {
        close();
      }
      break;
    default: break;
  }
  return now_ns + kStepNs;
}

void NvmeController::poll_admin() noexcept {
  admin_.poll(kAdminEntries);
  admin_.ring();
  counters_->bad_completions.set(admin_.bad_completions());
}

// ---- While it is ready --------------------------------------------------------------------------

uint64_t NvmeController::watch(uint32_t status) noexcept {
  poll_admin();
  if (state_ != State::kReady) return now_ns_ + kStepNs;
  const bool is_good = (status & (nvme::kFatal | nvme::kReady)) == nvme::kReady;
  const NvmeProblem problem = is_good ? what_is_late() : NvmeProblem::kFatal;
  if (problem != NvmeProblem::kNone) {
    note_problem(problem);
    counters_->resets.add(1);
    begin_reset();
    return now_ns_ + kStepNs;
  }
  aborts_.look(pairs_, admin_, now_ns_);
  if (now_ns_ >= health_ns_ && step_ == Step::kNone && !options_.is_only_identified) {
    health_ns_ = now_ns_ + kHealthIntervalNs;
    begin_step(Step::kHealth);
  }
  // Admin completions have no interrupt: poll for them.
  if (admin_.outstanding() > 0) return now_ns_ + kStepNs;
  const uint64_t interval_ns = std::min(options_.timeout_ns / 4, kWatchIntervalNsMax);
  return now_ns_ + std::max(interval_ns, kStepNs);
}

NvmeProblem NvmeController::what_is_late() const noexcept {
  const uint64_t before_ns = now_ns_ - std::min(now_ns_, options_.timeout_ns);
  if (admin_.find_overdue(before_ns) != NvmeQueue::kNone) return NvmeProblem::kSilent;
  return pairs_.is_any_stuck() ? NvmeProblem::kLate : NvmeProblem::kNone;
}

// ---- Admin commands -----------------------------------------------------------------------------

void NvmeController::begin_step(Step step) noexcept {
  BP_DCHECK(step_ == Step::kNone && (state_ == State::kSettingUp || state_ == State::kReady));
  nvme::Command* command = admin_.try_begin(step_call_, now_ns_).command;
  BP_ASSERT(command != nullptr);  // the queue has slots for a step and an abort
  step_ = step;
  const auto data = reinterpret_cast<uintptr_t>(data_);
  switch (step) {
    case Step::kController:
      command->opcode = nvme::kIdentify;
      command->prp1 = data;
      command->word10 = nvme::kIdentifyController;
      break;
    case Step::kNamespace:
    case Step::kGrowth:
      command->opcode = nvme::kIdentify;
      command->prp1 = data;
      command->space = identity_.space(space_index_).id;
      command->word10 = nvme::kIdentifyNamespace;
      break;
    case Step::kWriteCache:
      command->opcode = nvme::kSetFeatures;
      command->word10 = nvme::kFeatureWriteCache;
      command->word11 = *options_.has_write_cache ? 1 : 0;
      break;
    case Step::kQueueCount:  // the number of queues of each kind, less one
      command->opcode = nvme::kSetFeatures;
      command->word10 = nvme::kFeatureQueueCount;
      command->word11 = (pairs_.count() - 1) | (pairs_.count() - 1) << 16;
      break;
    case Step::kCompletionQueue:
      describe_queue(command, nvme::kCreateCompletion, pairs_.at(queue_index_).queue());
      command->word11 = nvme::kContiguous | nvme::kInterrupts | queue_index_ << 16;
      break;
    case Step::kSubmissionQueue:
      describe_queue(command, nvme::kCreateSubmission, pairs_.at(queue_index_).queue());
      command->word11 = nvme::kContiguous | command->word10 << 16;  // completion queue: the same id
      break;
    case Step::kHealth:
      command->opcode = nvme::kGetLogPage;
      command->space = nvme::kEveryNamespace;
      command->prp1 = data;
      command->word10 = nvme::kHealthLog | (nvme::kHealthBytes / 4 - 1) << 16;
      break;
    case Step::kNone: break;
  }
  admin_.ring();
}

void NvmeController::step_completed(NvmeCall& call, uint16_t status, uint32_t result) noexcept {
  static_cast<StepCall&>(call).controller->step_ended(status, result);
}

void NvmeController::step_ended(uint16_t status, uint32_t result) noexcept {
  // The controller is being reset, or has no access to memory.
  if (status == nvme::kNoAnswer || (state_ != State::kSettingUp && state_ != State::kReady)) return;
  const Step step = step_;
  step_ = Step::kNone;
  const uint16_t code = status & nvme::kCodeMask;
  if (step == Step::kHealth || step == Step::kGrowth) {
    if (step == Step::kHealth) {
      if (code == nvme::kSuccess) health_.take_log(data_, *counters_);
      space_index_ = 0;
      return begin_step(Step::kGrowth);
    }
    if (code == nvme::kSuccess) {
      (void)identity_.know_namespace(space_index_, NvmeIdentity::Look::kGrowth, data_);
    }
    if (++space_index_ < identity_.space_count()) begin_step(Step::kGrowth);
    return;
  }
  const bool is_unknown = step == Step::kNamespace && code == nvme::kInvalidNamespace;
  if (code != nvme::kSuccess && !is_unknown) {
    return fail(NvmeProblem::kRefused, code);
  }
  switch (step) {
    case Step::kController:
      identity_.know_controller(data_,
                                nvme::page_bytes_min(registers_.read64(nvme::kCapabilities)));
      if (options_.has_write_cache.value_or(false) && !identity_.has_write_cache()) {
        return fail(NvmeProblem::kNoWriteCache);
      }
      space_index_ = 0;
      return begin_step(Step::kNamespace);
    case Step::kNamespace: {
      using Look = NvmeIdentity::Look;
      const Look look = was_ready_ ? Look::kRestart : Look::kFirst;
      const NvmeProblem problem = is_unknown ? NvmeProblem::kMissingNamespace
                                             : identity_.know_namespace(space_index_, look, data_);
      if (problem != NvmeProblem::kNone) {
        return fail(problem, identity_.space(space_index_).id);
      }
      if (++space_index_ < identity_.space_count()) return begin_step(Step::kNamespace);
      return after_namespace();
    }
    case Step::kWriteCache: return begin_step(Step::kQueueCount);
    case Step::kQueueCount:
      if (!know_queue_count(result)) return fail(NvmeProblem::kFewerQueues);
      queue_index_ = 0;
      return begin_step(Step::kCompletionQueue);
    case Step::kCompletionQueue: return begin_step(Step::kSubmissionQueue);
    case Step::kSubmissionQueue:
      if (++queue_index_ < pairs_.count()) return begin_step(Step::kCompletionQueue);
      return become_ready();
    default: return become_ready();
  }
}

void NvmeController::after_namespace() noexcept {
  if (options_.is_only_identified) return become_ready();
  const bool is_set = options_.has_write_cache.has_value() && identity_.has_write_cache();
  begin_step(is_set ? Step::kWriteCache : Step::kQueueCount);
}

// Low half: granted submission queues, less one; high half: completion queues, less one. Returns
// whether there are enough for the queues in use.
bool NvmeController::know_queue_count(uint32_t result) noexcept {
  const uint32_t granted = std::min(result & 0xffff, result >> 16) + 1;
  if (was_ready_) return granted >= pairs_.count();
  pairs_.keep_first(granted);
  counters_->queue_pairs.set(pairs_.count());
  return true;
}

void NvmeController::become_ready() noexcept {
  was_ready_ = true;
  health_ns_ = now_ns_;
  if (!options_.is_only_identified) pairs_.want(NvmeQueuePair::Phase::kOpen);
  enter(State::kReady);
}

}  // namespace bedplate
