#include "transport/nvme/nvme_controller.h"

#include <algorithm>
#include <atomic>

#include "platform/assert.h"
#include "transport/nvme/nvme_prp_datapath.h"

namespace bedplate {
namespace {

constexpr uint32_t kAdminEntries = 16;
// How often a change of state is looked at, and how long one may take at least.
constexpr uint64_t kStepNs = kNsPerMs;
constexpr uint64_t kReadyUnitNs = 500 * kNsPerMs;
constexpr uint64_t kWatchIntervalNsMax = kNsPerSecond;
constexpr uint32_t kBlockLog2Min = 9;
constexpr uint32_t kBlockLog2Max = 12;

// Of 16 bytes; what does not fit into 8 is as good as endless.
uint64_t wide_field(const std::byte* answer, size_t offset) noexcept {
  return nvme::field<uint64_t>(answer, offset + 8) != 0 ? ~uint64_t{0}
                                                        : nvme::field<uint64_t>(answer, offset);
}

}  // namespace

uint64_t NvmeController::bytes_for(const NvmeOptions& options) noexcept {
  return kNvmePageBytes + NvmeQueue::bytes_for(kAdminEntries, false) +
         NvmeQueue::bytes_for(options.queue_entries, true);
}

// ---- Registers ----------------------------------------------------------------------------------

uint32_t NvmeController::read32(size_t offset) const noexcept {
  return *reinterpret_cast<volatile uint32_t*>(port_->registers + offset);
}

// By halves, which every controller takes.
uint64_t NvmeController::read64(size_t offset) const noexcept {
  return read32(offset) | uint64_t{read32(offset + 4)} << 32;
}

void NvmeController::write32(size_t offset, uint32_t value) noexcept {
  *reinterpret_cast<volatile uint32_t*>(port_->registers + offset) = value;
}

void NvmeController::write64(size_t offset, uint64_t value) noexcept {
  write32(offset, static_cast<uint32_t>(value));
  write32(offset + 4, static_cast<uint32_t>(value >> 32));
}

// ---- States -------------------------------------------------------------------------------------

void NvmeController::create(NvmePort& port, std::span<std::byte> memory, const NvmeOptions& options,
                            NvmeCounters& counters, uint64_t now_ns) {
  BP_ASSERT(memory.size() >= bytes_for(options) && !options.namespaces.empty());
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
  std::span<std::byte> rest = memory.subspan(kNvmePageBytes);
  admin_.create(0, kAdminEntries, false, rest, port.registers, doorbell_bytes);
  rest = rest.subspan(NvmeQueue::bytes_for(kAdminEntries, false));
  io_.queue().create(1, std::max(io_entries, NvmeQueue::kEntryCountMin), true, rest, port.registers,
                     doorbell_bytes);
  if (read32(nvme::kStatus) == nvme::kAllOnes) return fail(NvmeProblem::kGone, now_ns);
  if (!nvme::has_nvm_commands(cap)) return fail(NvmeProblem::kNotNvm, now_ns);
  if (nvme::page_bytes_min(cap) > kNvmePageBytes) return fail(NvmeProblem::kPageBytes, now_ns);
  if (io_entries < NvmeQueue::kEntryCountMin ||
      nvme::kDoorbells + uint64_t{4} * doorbell_bytes > port.registers_bytes) {
    return fail(NvmeProblem::kNoQueue, now_ns);
  }
  begin_reset(now_ns);
}

void NvmeController::enter(State state) noexcept {
  state_ = state;
  counters_->state.set(static_cast<uint64_t>(state));
}

void NvmeController::begin_reset(uint64_t now_ns) noexcept {
  io_.close();
  write32(nvme::kConfiguration, nvme::kSettings);
  deadline_ns_ = now_ns + ready_ns_;
  enter(State::kDisabling);
}

// Requires: the controller is disabled.
void NvmeController::enable(uint64_t now_ns) noexcept {
  end_outstanding();
  admin_.clear();
  io_.queue().clear();
  port_->allow_dma(true);  // what it was to write, it has forgotten
  write32(nvme::kAdminSizes, (kAdminEntries - 1) | (kAdminEntries - 1) << 16);
  write64(nvme::kAdminSubmission, reinterpret_cast<uintptr_t>(admin_.submissions()));
  write64(nvme::kAdminCompletion, reinterpret_cast<uintptr_t>(admin_.completions()));
  write32(nvme::kConfiguration, nvme::kSettings | nvme::kEnable);
  deadline_ns_ = now_ns + ready_ns_;
  enter(State::kEnabling);
}

void NvmeController::end_outstanding() noexcept {
  step_ = Step::kNone;
  is_aborting_ = false;
  admin_.fail_all();
  io_.queue().fail_all();
}

// It is kept from memory, so what it had can be given back.
void NvmeController::fail(NvmeProblem problem, uint64_t now_ns, uint32_t detail) noexcept {
  problem_ = problem;
  problem_detail_ = detail;
  counters_->problem.set(static_cast<uint64_t>(problem));
  io_.close();
  port_->allow_dma(false);
  end_outstanding();
  deadline_ns_ = now_ns + options_.timeout_ns;
  enter(State::kFailed);
}

void NvmeController::give_up(NvmeProblem problem) noexcept {
  fail(problem, now_ns_);
  enter(State::kClosed);
}

void NvmeController::shut_down(uint64_t now_ns) noexcept {
  if (state_ == State::kShuttingDown || state_ == State::kClosed) return;
  io_.close();
  if (state_ != State::kReady || read32(nvme::kStatus) == nvme::kAllOnes) {
    port_->allow_dma(false);
    end_outstanding();
    return enter(State::kClosed);
  }
  write32(nvme::kConfiguration, nvme::kSettings | nvme::kEnable | nvme::kShutdown);
  deadline_ns_ = now_ns + options_.timeout_ns;
  enter(State::kShuttingDown);
}

uint64_t NvmeController::look(uint64_t now_ns) noexcept {
  now_ns_ = now_ns;
  if (state_ == State::kClosed) return kNever;
  if (state_ == State::kFailed) {
    if (now_ns < deadline_ns_) return deadline_ns_;
    if (read32(nvme::kStatus) == nvme::kAllOnes) {
      return deadline_ns_ = now_ns + options_.timeout_ns;
    }
    counters_->resets.add(1);
    begin_reset(now_ns);
  }
  const uint32_t status = read32(nvme::kStatus);
  const bool is_late = now_ns >= deadline_ns_;
  if (status == nvme::kAllOnes) {
    fail(NvmeProblem::kGone, now_ns);
    return deadline_ns_;
  }
  switch (state_) {
    case State::kDisabling:
      if ((status & nvme::kReady) == 0) {
        enable(now_ns);
      } else if (is_late) {
        fail(NvmeProblem::kNotDisabled, now_ns);
      }
      break;
    case State::kEnabling:
      if ((status & nvme::kFatal) != 0) {
        fail(NvmeProblem::kFatal, now_ns);
      } else if ((status & nvme::kReady) != 0) {
        enter(State::kSettingUp);
        begin_step(Step::kController);
      } else if (is_late) {
        fail(NvmeProblem::kNotReady, now_ns);
      }
      break;
    case State::kSettingUp:
      poll(kAdminEntries, now_ns);
      if (state_ == State::kSettingUp &&
          admin_.find_overdue(now_ns - std::min(now_ns, options_.timeout_ns)) != NvmeQueue::kNone) {
        fail(NvmeProblem::kSilent, now_ns);
      }
      break;
    case State::kReady: return watch(now_ns);
    case State::kShuttingDown:
      if ((status & nvme::kShutdownMask) != nvme::kShutdownDone && !is_late) break;
      port_->allow_dma(false);
      end_outstanding();
      enter(State::kClosed);
      return kNever;
    default: break;
  }
  return now_ns + kStepNs;
}

uint32_t NvmeController::poll(uint32_t budget, uint64_t now_ns) noexcept {
  now_ns_ = now_ns;
  uint32_t count = io_.poll(budget, now_ns);
  if (admin_.outstanding() > 0) {
    count += admin_.poll(kAdminEntries);
    admin_.ring();
  }
  if (count > 0) publish();
  return count;
}

void NvmeController::publish() noexcept {
  counters_->commands.set(io_.command_count());
  counters_->commands_outstanding.set(io_.queue().outstanding());
  counters_->errors.set(io_.error_count());
  counters_->bad_completions.set(io_.queue().bad_completions() + admin_.bad_completions());
}

// ---- While it is ready --------------------------------------------------------------------------

uint64_t NvmeController::watch(uint64_t now_ns) noexcept {
  if ((read32(nvme::kStatus) & (nvme::kFatal | nvme::kReady)) != nvme::kReady) {
    problem_ = NvmeProblem::kFatal;
    counters_->problem.set(static_cast<uint64_t>(problem_));
    counters_->resets.add(1);
    begin_reset(now_ns);
    return now_ns + kStepNs;
  }
  look_at_late(now_ns);
  if (state_ != State::kReady) return now_ns + kStepNs;
  if (now_ns >= health_ns_ && step_ == Step::kNone && !options_.is_only_identified) {
    health_ns_ = now_ns + kHealthIntervalNs;
    begin_step(Step::kHealth);
  }
  publish();
  const uint64_t interval_ns = std::min(options_.timeout_ns / 4, kWatchIntervalNsMax);
  return now_ns + std::max(interval_ns, kStepNs);
}

void NvmeController::look_at_late(uint64_t now_ns) noexcept {
  if (now_ns < options_.timeout_ns) return;
  const uint64_t before_ns = now_ns - options_.timeout_ns;
  NvmeProblem problem = NvmeProblem::kNone;
  if (admin_.find_overdue(before_ns) != NvmeQueue::kNone) problem = NvmeProblem::kSilent;
  const uint32_t late = io_.queue().find_overdue(before_ns);
  if (late != NvmeQueue::kNone && io_.queue().is_marked(late)) problem = NvmeProblem::kLate;
  if (problem != NvmeProblem::kNone) {
    problem_ = problem;
    counters_->problem.set(static_cast<uint64_t>(problem));
    counters_->resets.add(1);
    return begin_reset(now_ns);
  }
  // One at a time: every controller takes that. Others that are late get their second chance
  // later, and so are not forgotten.
  if (late == NvmeQueue::kNone || is_aborting_) return;
  counters_->timeouts.add(1);
  io_.queue().mark(late, now_ns);
  nvme::Command* command = begin_admin(abort_call_);
  if (command == nullptr) return;
  is_aborting_ = true;
  command->opcode = nvme::kAbort;
  command->word10 = io_.queue().id() | late << 16;
  admin_.ring();
}

// Result, bit 0: it was not aborted.
void NvmeController::abort_completed(NvmeCall& call, uint16_t status, uint32_t result) noexcept {
  NvmeController& self = *static_cast<AdminCall&>(call).controller;
  self.is_aborting_ = false;
  if (status == nvme::kSuccess && (result & 1) == 0) self.counters_->aborts.add(1);
}

// ---- Admin commands -----------------------------------------------------------------------------

nvme::Command* NvmeController::begin_admin(AdminCall& call) noexcept {
  return admin_.try_begin(call, now_ns_).command;
}

void NvmeController::begin_step(Step step) noexcept {
  nvme::Command* command = begin_admin(step_call_);
  BP_ASSERT(command != nullptr);  // a step and an abort are all there is
  step_ = step;
  const auto data = reinterpret_cast<uintptr_t>(data_);
  const NvmeQueue& queue = io_.queue();
  const uint32_t queue_words = queue.id() | (queue.entry_count() - 1) << 16;
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
    case Step::kQueueCount:  // one of each, less one
      command->opcode = nvme::kSetFeatures;
      command->word10 = nvme::kFeatureQueueCount;
      break;
    case Step::kCompletionQueue:
      command->opcode = nvme::kCreateCompletion;
      command->prp1 = reinterpret_cast<uintptr_t>(queue.completions());
      command->word10 = queue_words;
      command->word11 = nvme::kContiguous | nvme::kInterrupts;  // by the first vector
      break;
    case Step::kSubmissionQueue:
      command->opcode = nvme::kCreateSubmission;
      command->prp1 = reinterpret_cast<uintptr_t>(queue.submissions());
      command->word10 = queue_words;
      command->word11 = nvme::kContiguous | uint32_t{queue.id()} << 16;
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
  static_cast<AdminCall&>(call).controller->step_ended(status, result);
}

void NvmeController::step_ended(uint16_t status, uint32_t) noexcept {
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
    return fail(NvmeProblem::kRefused, now_ns_, code);
  }
  switch (step) {
    case Step::kController:
      know_controller();
      if (options_.has_write_cache.value_or(false) && !has_cache_) {
        return fail(NvmeProblem::kNoWriteCache, now_ns_);
      }
      space_index_ = 0;
      return begin_step(Step::kNamespace);
    case Step::kNamespace: {
      const NvmeProblem problem =
          is_unknown ? NvmeProblem::kMissingNamespace : know_namespace(true);
      if (problem != NvmeProblem::kNone) {
        return fail(problem, now_ns_, spaces_[space_index_].id);
      }
      if (++space_index_ < options_.namespaces.size()) return begin_step(Step::kNamespace);
      return after_namespace();
    }
    case Step::kWriteCache: return begin_step(Step::kQueueCount);
    case Step::kQueueCount: return begin_step(Step::kCompletionQueue);
    case Step::kCompletionQueue: return begin_step(Step::kSubmissionQueue);
    default: return become_ready();
  }
}

void NvmeController::after_namespace() noexcept {
  if (options_.is_only_identified) return become_ready();
  const bool is_set = options_.has_write_cache.has_value() && has_cache_;
  begin_step(is_set ? Step::kWriteCache : Step::kQueueCount);
}

void NvmeController::become_ready() noexcept {
  was_ready_ = true;
  health_ns_ = now_ns_;
  if (!options_.is_only_identified) io_.open();
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
  space.block_log2 = block_log2;
  const uint64_t blocks = std::min(transfer_bytes_max_ >> block_log2, nvme::kBlocksPerCommandMax);
  space.transfer_blocks_max = static_cast<uint32_t>(blocks);
  // The limit of transfers is none of these by the letter; some controllers keep it all the same.
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
  counters.media_errors.set(wide_field(data_, nvme::kMediaErrors));
}

}  // namespace bedplate
