#include "transport/nvme/nvme_controller.h"

#include <algorithm>
#include <atomic>

#include "platform/assert.h"
#include "transport/nvme/nvme_prp_datapath.h"

namespace bedplate {
namespace {

constexpr uint32_t kAdminEntries = 16;
// The time between two looks at a change of state, and the least time that one is given.
constexpr uint64_t kStepNs = kNsPerMs;
constexpr uint64_t kReadyUnitNs = 500 * kNsPerMs;
constexpr uint64_t kWatchIntervalNsMax = kNsPerSecond;
constexpr uint32_t kBlockLog2Min = 9;
constexpr uint32_t kBlockLog2Max = 12;

// A number of 16 bytes; one that does not fit into 8 is as good as endless.
uint64_t wide_field(const std::byte* answer, size_t offset) noexcept {
  return nvme::field<uint64_t>(answer, offset + 8) != 0 ? ~uint64_t{0}
                                                        : nvme::field<uint64_t>(answer, offset);
}

using State = NvmeController::State;

constexpr uint32_t bit_of(State state) noexcept { return 1U << static_cast<uint32_t>(state); }

// The states, as bits, that may follow it.
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

}  // namespace

uint64_t NvmeController::bytes_for() noexcept {
  return kNvmePageBytes + NvmeQueue::bytes_for(kAdminEntries, false);
}

// ---- Invariants ---------------------------------------------------------------------------------

bool NvmeController::is_valid() const noexcept {
  if (counters_->state.read() != static_cast<uint64_t>(state_)) return false;
  return are_pairs_valid() && is_step_valid() && admin_.is_valid();
}

// 1, 2 and 3.
bool NvmeController::are_pairs_valid() const noexcept {
  using Phase = NvmeQueuePair::Phase;
  switch (state_) {
    case State::kReady:
      return was_ready_ && (phase_ == Phase::kOpen) == !options_.is_only_identified;
    case State::kDisabling:
    case State::kShuttingDown:
      return phase_ != Phase::kOpen &&
             (phase_ == Phase::kEnded || !is_stopping_ || have_followed());
    case State::kEnabling:
    case State::kSettingUp: return phase_ == Phase::kEnded && have_followed();
    case State::kFailed:
    case State::kClosed: return phase_ == Phase::kEnded;
  }
  return false;
}

// 4 and 5.
bool NvmeController::is_step_valid() const noexcept {
  const bool has_step = step_ != Step::kNone;
  if (admin_.outstanding() != uint32_t{has_step} + uint32_t{is_aborting_}) return false;
  switch (state_) {
    case State::kEnabling:
    case State::kFailed:
    case State::kClosed: return !has_step && !is_aborting_;
    case State::kSettingUp:
      if (!has_step || is_aborting_) return false;
      break;
    default: break;
  }
  const bool has_space = step_ == Step::kNamespace || step_ == Step::kGrowth;
  if (has_space && space_index_ >= options_.namespaces.size()) return false;
  const bool has_queue = step_ == Step::kCompletionQueue || step_ == Step::kSubmissionQueue;
  return !has_queue || queue_index_ < queue_count_;
}

// ---- Registers ----------------------------------------------------------------------------------

uint32_t NvmeController::read32(size_t offset) const noexcept {
  BP_DCHECK(state_ != State::kClosed && offset + sizeof(uint32_t) <= port_->registers_bytes);
  return *reinterpret_cast<volatile uint32_t*>(port_->registers + offset);
}

// By halves, which every controller takes.
uint64_t NvmeController::read64(size_t offset) const noexcept {
  return read32(offset) | uint64_t{read32(offset + 4)} << 32;
}

void NvmeController::write32(size_t offset, uint32_t value) noexcept {
  BP_DCHECK(state_ != State::kClosed && offset + sizeof value <= port_->registers_bytes);
  *reinterpret_cast<volatile uint32_t*>(port_->registers + offset) = value;
}

void NvmeController::write64(size_t offset, uint64_t value) noexcept {
  write32(offset, static_cast<uint32_t>(value));
  write32(offset + 4, static_cast<uint32_t>(value >> 32));
}

// ---- States -------------------------------------------------------------------------------------

void NvmeController::create(NvmePort& port, std::span<std::byte> memory,
                            std::span<const NvmeQueuePlace> queues, const NvmeOptions& options,
                            NvmeCounters& counters, uint64_t now_ns) {
  BP_ASSERT(memory.size() >= bytes_for() && !options.namespaces.empty());
  BP_ASSERT(!queues.empty() || options.is_only_identified);
  BP_ASSERT(port_ == nullptr && port.registers_bytes >= nvme::kDoorbells);
  port_ = &port;
  options_ = options;
  counters_ = &counters;
  now_ns_ = now_ns;
  spaces_ = std::make_unique<NvmeNamespace[]>(options.namespaces.size());
  for (size_t i = 0; i < options.namespaces.size(); ++i) spaces_[i].id = options.namespaces[i];
  step_call_.completed = &NvmeController::step_completed;
  abort_call_.completed = &NvmeController::abort_completed;
  step_call_.controller = abort_call_.controller = this;

  const uint64_t cap = read64(nvme::kCapabilities);
  ready_ns_ = std::max<uint64_t>(1, nvme::ready_units(cap)) * kReadyUnitNs;
  const uint32_t doorbell_bytes = nvme::doorbell_bytes(cap);
  const uint32_t io_entries = std::min(options.queue_entries, nvme::entry_count_max(cap));
  data_ = memory.data();
  admin_.create(0, kAdminEntries, false, memory.subspan(kNvmePageBytes), port.registers,
                doorbell_bytes);
  // Each pair has two doorbells, the admin queues first.
  const uint64_t doorbells = (port.registers_bytes - nvme::kDoorbells) / doorbell_bytes;
  queue_count_ = static_cast<uint32_t>(std::min<uint64_t>(
      {queues.size(), port.interrupt_count, std::max<uint64_t>(doorbells / 2, 1) - 1}));
  pairs_ = std::make_unique<NvmeQueuePair[]>(queue_count_);
  for (uint32_t i = 0; i < queue_count_; ++i) {
    pairs_[i].create({.id = static_cast<uint16_t>(i + 1),
                      .entry_count = std::max(io_entries, NvmeQueue::kEntryCountMin),
                      .doorbell_bytes = doorbell_bytes,
                      .timeout_ns = options.timeout_ns},
                     queues[i].memory, port.registers, *queues[i].counters);
  }
  if (read32(nvme::kStatus) == nvme::kAllOnes) return fail(NvmeProblem::kGone);
  if (!nvme::has_nvm_commands(cap)) return fail(NvmeProblem::kNotNvm);
  if (nvme::page_bytes_min(cap) > kNvmePageBytes) return fail(NvmeProblem::kPageBytes);
  if (io_entries < NvmeQueue::kEntryCountMin || doorbells < 2 ||
      (queue_count_ == 0 && !queues.empty())) {
    return fail(NvmeProblem::kNoQueue);
  }
  begin_reset();
  BP_DCHECK_SLOW(is_valid());
}

void NvmeController::want(NvmeQueuePair::Phase phase) noexcept {
  phase_ = phase;
  for (NvmeQueuePair& pair : pairs()) pair.want(phase);
}

bool NvmeController::have_followed() const noexcept {
  const std::span<NvmeQueuePair> all = pairs();
  return std::all_of(all.begin(), all.end(),
                     [](const NvmeQueuePair& pair) { return pair.has_followed(); });
}

void NvmeController::enter(State state) noexcept {
  BP_DCHECK((followers_of(state_) & bit_of(state)) != 0);
  state_ = state;
  counters_->state.set(static_cast<uint64_t>(state));
}

void NvmeController::note_problem(NvmeProblem problem) noexcept {
  problem_ = problem;
  counters_->problem.set(static_cast<uint64_t>(problem));
}

void NvmeController::begin_reset() noexcept {
  if (phase_ == NvmeQueuePair::Phase::kOpen) want(NvmeQueuePair::Phase::kClosed);
  is_stopping_ = false;
  enter(State::kDisabling);
}

// Requires: no shard submits any more.
void NvmeController::stop(uint32_t configuration, uint64_t within_ns) noexcept {
  BP_DCHECK(phase_ != NvmeQueuePair::Phase::kOpen && have_followed());
  write32(nvme::kConfiguration, configuration);
  deadline_ns_ = now_ns_ + within_ns;
  is_stopping_ = true;
}

// Once it has stopped, all end their commands; once all have, it starts anew.
void NvmeController::look_at_stop(uint32_t status, bool is_late) noexcept {
  if (!have_followed()) return;
  if (!is_stopping_) return stop(nvme::kSettings, ready_ns_);
  if ((status & nvme::kReady) == 0) {
    if (phase_ != NvmeQueuePair::Phase::kEnded) want(NvmeQueuePair::Phase::kEnded);
    if (have_followed()) enable();
  } else if (is_late) {
    fail(NvmeProblem::kNotDisabled);
  }
}

// Requires: the controller is disabled, and nothing is outstanding with any shard.
void NvmeController::enable() noexcept {
  BP_DCHECK(phase_ == NvmeQueuePair::Phase::kEnded && have_followed());
  end_admin();
  admin_.clear();
  port_->allow_dma(true);  // what it was to write, it has forgotten
  write32(nvme::kAdminSizes, (kAdminEntries - 1) | (kAdminEntries - 1) << 16);
  write64(nvme::kAdminSubmission, reinterpret_cast<uintptr_t>(admin_.submissions()));
  write64(nvme::kAdminCompletion, reinterpret_cast<uintptr_t>(admin_.completions()));
  write32(nvme::kConfiguration, nvme::kSettings | nvme::kEnable);
  deadline_ns_ = now_ns_ + ready_ns_;
  enter(State::kEnabling);
}

void NvmeController::end_admin() noexcept {
  step_ = Step::kNone;
  admin_.fail_all();
  is_aborting_ = false;
  BP_DCHECK(admin_.outstanding() == 0);
}

// The controller is kept from memory, so its buffers can be given back.
void NvmeController::fail(NvmeProblem problem, uint32_t detail) noexcept {
  note_problem(problem);
  problem_detail_ = detail;
  port_->allow_dma(false);
  want(NvmeQueuePair::Phase::kEnded);
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
  want(NvmeQueuePair::Phase::kEnded);
  end_admin();
  enter(State::kClosed);
}

void NvmeController::shut_down(uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  now_ns_ = now_ns;
  if (state_ == State::kShuttingDown || state_ == State::kClosed) return;
  if (state_ != State::kReady || read32(nvme::kStatus) == nvme::kAllOnes) return close();
  want(NvmeQueuePair::Phase::kClosed);
  is_stopping_ = false;
  enter(State::kShuttingDown);
}

uint64_t NvmeController::look(uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  now_ns_ = now_ns;
  if (state_ == State::kClosed) return have_followed() ? kNever : now_ns + kStepNs;
  if (state_ == State::kFailed) {
    if (now_ns < deadline_ns_) return deadline_ns_;
    if (read32(nvme::kStatus) == nvme::kAllOnes) {
      return deadline_ns_ = now_ns + options_.timeout_ns;
    }
    counters_->resets.add(1);
    begin_reset();
  }
  const uint32_t status = read32(nvme::kStatus);
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
      if (!have_followed()) break;
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
  abort_late();
  if (now_ns_ >= health_ns_ && step_ == Step::kNone && !options_.is_only_identified) {
    health_ns_ = now_ns_ + kHealthIntervalNs;
    begin_step(Step::kHealth);
  }
  // Admin commands are looked for, and ring nobody.
  if (admin_.outstanding() > 0) return now_ns_ + kStepNs;
  const uint64_t interval_ns = std::min(options_.timeout_ns / 4, kWatchIntervalNsMax);
  return now_ns_ + std::max(interval_ns, kStepNs);
}

NvmeProblem NvmeController::what_is_late() const noexcept {
  const uint64_t before_ns = now_ns_ - std::min(now_ns_, options_.timeout_ns);
  if (admin_.find_overdue(before_ns) != NvmeQueue::kNone) return NvmeProblem::kSilent;
  const std::span<NvmeQueuePair> all = pairs();
  const bool is_stuck = std::any_of(all.begin(), all.end(),
                                    [](const NvmeQueuePair& pair) { return pair.is_stuck(); });
  return is_stuck ? NvmeProblem::kLate : NvmeProblem::kNone;
}

// One at a time, of all shards: every controller takes that.
void NvmeController::abort_late() noexcept {
  if (is_aborting_) return;
  for (NvmeQueuePair& pair : pairs()) {
    const uint32_t late_id = pair.take_late();
    if (late_id == NvmeQueuePair::kNone) continue;
    nvme::Command* command = begin_admin(abort_call_);
    BP_ASSERT(command != nullptr);  // a step and an abort are all there is
    is_aborting_ = true;
    command->opcode = nvme::kAbort;
    command->word10 = pair.queue().id() | late_id << 16;
    return admin_.ring();
  }
}

// Result, bit 0: it was not aborted.
void NvmeController::abort_completed(NvmeCall& call, uint16_t status, uint32_t result) noexcept {
  NvmeController& self = *static_cast<AdminCall&>(call).controller;
  BP_DCHECK(self.is_aborting_ && &call == &self.abort_call_);
  self.is_aborting_ = false;
  if (status == nvme::kSuccess && (result & 1) == 0) self.counters_->aborts.add(1);
}

// ---- Admin commands -----------------------------------------------------------------------------

nvme::Command* NvmeController::begin_admin(AdminCall& call) noexcept {
  return admin_.try_begin(call, now_ns_).command;
}

void NvmeController::begin_step(Step step) noexcept {
  BP_DCHECK(step_ == Step::kNone && (state_ == State::kSettingUp || state_ == State::kReady));
  nvme::Command* command = begin_admin(step_call_);
  BP_ASSERT(command != nullptr);  // a step and an abort are all there is
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
      command->space = spaces_[space_index_].id;
      command->word10 = nvme::kIdentifyNamespace;
      break;
    case Step::kWriteCache:
      command->opcode = nvme::kSetFeatures;
      command->word10 = nvme::kFeatureWriteCache;
      command->word11 = *options_.has_write_cache ? 1 : 0;
      break;
    case Step::kQueueCount:  // so many of each, less one
      command->opcode = nvme::kSetFeatures;
      command->word10 = nvme::kFeatureQueueCount;
      command->word11 = (queue_count_ - 1) | (queue_count_ - 1) << 16;
      break;
    case Step::kCompletionQueue:
      describe_queue(*command, nvme::kCreateCompletion);
      command->word11 = nvme::kContiguous | nvme::kInterrupts | queue_index_ << 16;
      break;
    case Step::kSubmissionQueue:
      describe_queue(*command, nvme::kCreateSubmission);
      command->word11 = nvme::kContiguous | command->word10 << 16;  // for the one of its number
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

void NvmeController::describe_queue(nvme::Command& command,
                                    nvme::AdminOpcode opcode) const noexcept {
  BP_DCHECK(queue_index_ < queue_count_);
  const NvmeQueue& queue = pairs_[queue_index_].queue();
  command.opcode = opcode;
  command.prp1 = reinterpret_cast<uintptr_t>(
      opcode == nvme::kCreateCompletion ? queue.completions() : queue.submissions());
  command.word10 = queue.id() | (queue.entry_count() - 1) << 16;
}

void NvmeController::step_completed(NvmeCall& call, uint16_t status, uint32_t result) noexcept {
  static_cast<AdminCall&>(call).controller->step_ended(status, result);
}

void NvmeController::step_ended(uint16_t status, uint32_t result) noexcept {
  // It is being reset, or kept from memory.
  if (status == nvme::kNoAnswer || (state_ != State::kSettingUp && state_ != State::kReady)) return;
  const Step step = step_;
  step_ = Step::kNone;
  const uint16_t code = status & nvme::kCodeMask;
  if (step == Step::kHealth || step == Step::kGrowth) {
    if (step == Step::kHealth) {
      if (code == nvme::kSuccess) know_health();
      space_index_ = 0;
      return begin_step(Step::kGrowth);
    }
    if (code == nvme::kSuccess) (void)know_namespace(false);
    if (++space_index_ < options_.namespaces.size()) begin_step(Step::kGrowth);
    return;
  }
  const bool is_unknown = step == Step::kNamespace && code == nvme::kInvalidNamespace;
  if (code != nvme::kSuccess && !is_unknown) {
    return fail(NvmeProblem::kRefused, code);
  }
  switch (step) {
    case Step::kController:
      know_controller();
      if (options_.has_write_cache.value_or(false) && !has_cache_) {
        return fail(NvmeProblem::kNoWriteCache);
      }
      space_index_ = 0;
      return begin_step(Step::kNamespace);
    case Step::kNamespace: {
      const NvmeProblem problem =
          is_unknown ? NvmeProblem::kMissingNamespace : know_namespace(true);
      if (problem != NvmeProblem::kNone) {
        return fail(problem, spaces_[space_index_].id);
      }
      if (++space_index_ < options_.namespaces.size()) return begin_step(Step::kNamespace);
      return after_namespace();
    }
    case Step::kWriteCache: return begin_step(Step::kQueueCount);
    case Step::kQueueCount:
      if (!know_queue_count(result)) return fail(NvmeProblem::kFewerQueues);
      queue_index_ = 0;
      return begin_step(Step::kCompletionQueue);
    case Step::kCompletionQueue: return begin_step(Step::kSubmissionQueue);
    case Step::kSubmissionQueue:
      if (++queue_index_ < queue_count_) return begin_step(Step::kCompletionQueue);
      return become_ready();
    default: return become_ready();
  }
}

void NvmeController::after_namespace() noexcept {
  if (options_.is_only_identified) return become_ready();
  const bool is_set = options_.has_write_cache.has_value() && has_cache_;
  begin_step(is_set ? Step::kWriteCache : Step::kQueueCount);
}

// Low half: submission queues that there may be, less one; high half: completion queues. Returns
// true if they are enough for the queues in use.
bool NvmeController::know_queue_count(uint32_t result) noexcept {
  const uint32_t granted = std::min(result & 0xffff, result >> 16) + 1;
  if (was_ready_) return granted >= queue_count_;
  BP_DCHECK(phase_ == NvmeQueuePair::Phase::kEnded);  // those that it loses are wanted nothing
  queue_count_ = std::min(queue_count_, granted);
  counters_->queue_pairs.set(queue_count_);
  return true;
}

void NvmeController::become_ready() noexcept {
  was_ready_ = true;
  health_ns_ = now_ns_;
  if (!options_.is_only_identified) want(NvmeQueuePair::Phase::kOpen);
  enter(State::kReady);
}

void NvmeController::know_controller() noexcept {
  const auto transfer_log2 = nvme::field<uint8_t>(data_, nvme::kMaxTransfer);
  transfer_bytes_max_ = kNvmeTransferBytesMax;
  const uint64_t page_bytes = nvme::page_bytes_min(read64(nvme::kCapabilities));
  if (transfer_log2 > 0 && transfer_log2 < 20) {
    transfer_bytes_max_ = std::min(transfer_bytes_max_, page_bytes << transfer_log2);
  }
  optionals_ = nvme::field<uint16_t>(data_, nvme::kOptionals);
  has_cache_ = (nvme::field<uint8_t>(data_, nvme::kWriteCache) & 1) != 0;
}

// `is_first`: of a start; else only whether it has grown.
NvmeProblem NvmeController::know_namespace(bool is_first) noexcept {
  BP_DCHECK(space_index_ < options_.namespaces.size());
  NvmeNamespace& space = spaces_[space_index_];
  const auto block_count = nvme::field<uint64_t>(data_, nvme::kBlockCount);
  if (block_count == 0) return NvmeProblem::kMissingNamespace;
  const auto format_byte = nvme::field<uint8_t>(data_, nvme::kFormat);
  const uint32_t format = (format_byte & 0xfU) | (format_byte >> 1 & 0x30U);
  const size_t at = nvme::kFormats + size_t{4} * format;
  const auto block_log2 = nvme::field<uint8_t>(data_, at + 2);
  if (nvme::field<uint16_t>(data_, at) != 0) return NvmeProblem::kMetadata;
  if (block_log2 < kBlockLog2Min || block_log2 > kBlockLog2Max) return NvmeProblem::kBlockBytes;
  const uint64_t known_count = space.block_count.load(std::memory_order_relaxed);
  if (was_ready_ && (space.block_log2 != block_log2 || block_count < known_count)) {
    return NvmeProblem::kOtherFormat;
  }
  space.block_count.store(block_count, std::memory_order_relaxed);
  if (!is_first) return NvmeProblem::kNone;
  const uint64_t blocks = std::min(transfer_bytes_max_ >> block_log2, nvme::kBlocksPerCommandMax);
  // The rest stays, since shards look at it while the controller starts anew.
  if (was_ready_) {
    return blocks < space.transfer_blocks_max ? NvmeProblem::kOtherFormat : NvmeProblem::kNone;
  }
  space.block_log2 = block_log2;
  space.transfer_blocks_max = static_cast<uint32_t>(blocks);
  // By the letter the limit of transfers is not for Write Zeroes; some controllers apply it.
  space.zero_blocks_max = (optionals_ & nvme::kHasWriteZeroes) != 0 ? space.transfer_blocks_max : 0;
  space.can_deallocate = (optionals_ & nvme::kHasDeallocate) != 0;
  return NvmeProblem::kNone;
}

void NvmeController::know_health() noexcept {
  NvmeCounters& counters = *counters_;
  counters.warnings.set(nvme::field<uint8_t>(data_, nvme::kWarnings));
  counters.temperature_kelvin.set(nvme::field<uint16_t>(data_, nvme::kTemperature));
  counters.spare_percent.set(nvme::field<uint8_t>(data_, nvme::kSpare));
  counters.used_percent.set(nvme::field<uint8_t>(data_, nvme::kUsed));
  counters.read_units.set(wide_field(data_, nvme::kUnitsRead));
  counters.written_units.set(wide_field(data_, nvme::kUnitsWritten));
  counters.power_cycles.set(wide_field(data_, nvme::kPowerCycles));
  counters.power_on_hours.set(wide_field(data_, nvme::kPowerOnHours));
  counters.unsafe_shutdowns.set(wide_field(data_, nvme::kUnsafeShutdowns));
  const uint64_t media_errors = wide_field(data_, nvme::kMediaErrors);
  const uint64_t known = counters.media_errors.read();
  if (is_health_known_ && media_errors > known) counters.new_media_errors.add(media_errors - known);
  counters.media_errors.set(media_errors);
  is_health_known_ = true;
}

}  // namespace bedplate
