#include "transport/nvme/nvme_queue_pair_datapath.h"

#include <algorithm>

#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint64_t kLookIntervalNsMin = kNsPerMs;
constexpr uint64_t kLookIntervalNsMax = kNsPerSecond;

}  // namespace

void NvmeQueuePair::create(const Options& options, std::span<std::byte> memory,
                           volatile std::byte* registers, NvmeQueueCounters& counters) noexcept {
  BP_DCHECK(has_followed() && !io_.is_open() && !has_outstanding());
  timeout_ns_ = options.timeout_ns;
  counters_ = &counters;
  io_.queue().create(options.id, options.entry_count, true, memory, registers,
                     options.doorbell_bytes);
}

// Checks invariants 4, 5 and 6. late_id_ is read once, because the control may take the id any
// time.
bool NvmeQueuePair::is_valid() const noexcept {
  const uint32_t reached = reached_.load(std::memory_order_relaxed);
  const Phase phase = phase_of(reached);
  const uint32_t late = late_id_.load(std::memory_order_relaxed);
  if (phase > Phase::kClosed || io_.is_open() != (phase == Phase::kOpen)) return false;
  if (is_newer(reached, wanted_.load(std::memory_order_relaxed))) return false;
  if (phase == Phase::kEnded && (has_outstanding() || late != kNone)) return false;
  if (phase == Phase::kEnded && is_stuck_.load(std::memory_order_relaxed)) return false;
  if (late != kNone && io_.queue().withheld() != (late & ~kTaken)) return false;
  return io_.is_valid() && io_.queue().is_valid();
}

// ---- The control's ------------------------------------------------------------------------------

void NvmeQueuePair::want(Phase phase) noexcept {
  BP_DCHECK(is_controls_thread());
  const uint32_t before = wanted_.load(std::memory_order_relaxed);
  BP_DCHECK(phase != Phase::kOpen || (has_followed() && phase_of(before) == Phase::kEnded));
  const uint32_t number = (before >> kPhaseBits) + 1;
  // Pairs with follow(): the shard sees the control's earlier writes.
  wanted_.store(number << kPhaseBits | static_cast<uint32_t>(phase), std::memory_order_release);
  if (calls_.follow == nullptr) return follow();
  calls_.follow(calls_.follow_context);
}

uint32_t NvmeQueuePair::take_late() noexcept {
  BP_DCHECK(is_controls_thread());
  uint32_t late = late_id_.load(std::memory_order_relaxed);
  if (late == kNone || (late & kTaken) != 0) return kNone;
  const bool is_taken =
      late_id_.compare_exchange_strong(late, late | kTaken, std::memory_order_acquire);
  return is_taken ? late : kNone;
}

void NvmeQueuePair::end_abort() noexcept {
  BP_DCHECK(is_controls_thread());
  uint32_t late = late_id_.load(std::memory_order_relaxed);
  if (late == kNone || (late & kTaken) == 0) return;
  // Pairs with settle_late(): the controller does nothing more to the id.
  late_id_.compare_exchange_strong(late, kNone, std::memory_order_release);
}

// ---- The shard's --------------------------------------------------------------------------------

void NvmeQueuePair::follow() noexcept {
  BP_DCHECK(is_shards_thread());
  BP_KEEPS_VALID(*this);
  const uint32_t wanted = wanted_.load(std::memory_order_acquire);
  if (wanted == reached_.load(std::memory_order_relaxed)) return;
  BP_DCHECK(is_newer(wanted, reached_.load(std::memory_order_relaxed)));
  switch (phase_of(wanted)) {
    case Phase::kOpen:
      BP_DCHECK(!has_outstanding() && late_id_.load(std::memory_order_relaxed) == kNone);
      io_.open();
      break;
    case Phase::kClosed:
      io_.queue().ring();  // submits the commands that were just begun
      io_.close();
      break;
    case Phase::kEnded:
      io_.close();
      io_.queue().fail_all();
      io_.queue().clear();
      late_id_.store(kNone, std::memory_order_relaxed);
      is_stuck_.store(false, std::memory_order_relaxed);
      break;
  }
  publish();
  reached_.store(wanted, std::memory_order_release);
}

uint32_t NvmeQueuePair::poll(uint32_t budget, uint64_t now_ns) noexcept {
  BP_DCHECK(is_shards_thread());
  const uint32_t count = io_.poll(budget, now_ns);
  if (count == 0) return 0;
  publish();
  settle_late();
  BP_DCHECK_SLOW(is_valid());
  return count;
}

// Withdraws a late command that has ended before the control took it, and frees its id once no
// abort of it is in progress.
void NvmeQueuePair::settle_late() noexcept {
  NvmeQueue& queue = io_.queue();
  if (BP_LIKELY(queue.withheld() == kNone)) return;
  uint32_t late = late_id_.load(std::memory_order_acquire);
  if (late == queue.withheld() && !queue.is_outstanding(late) &&
      late_id_.compare_exchange_strong(late, kNone, std::memory_order_relaxed)) {
    late = kNone;
  }
  if (late == kNone) queue.end_withholding();
}

uint64_t NvmeQueuePair::look(uint64_t now_ns) noexcept {
  BP_DCHECK(is_shards_thread());
  BP_KEEPS_VALID(*this);
  publish();
  settle_late();
  const uint64_t next_ns =
      now_ns + std::clamp(timeout_ns_ / 4, kLookIntervalNsMin, kLookIntervalNsMax);
  if (!io_.is_open() || now_ns < timeout_ns_) return next_ns;
  NvmeQueue& queue = io_.queue();
  const uint32_t late = queue.find_overdue(now_ns - timeout_ns_);
  if (late == kNone) return next_ns;
  if (queue.is_marked(late)) {
    is_stuck_.store(true, std::memory_order_release);
    tell_control();
    return next_ns;
  }
  // One at a time: other late commands stay overdue, and get their second time limit later.
  if (late_id_.load(std::memory_order_relaxed) != kNone) return next_ns;
  counters_->timeouts.add(1);
  queue.mark(late, now_ns);
  queue.withhold(late);
  late_id_.store(late, std::memory_order_release);
  tell_control();
  return next_ns;
}

void NvmeQueuePair::tell_control() noexcept {
  if (calls_.look != nullptr) calls_.look(calls_.look_context);
}

void NvmeQueuePair::publish() noexcept {
  BP_DCHECK(io_.queue().outstanding() <= io_.queue().outstanding_peak());
  BP_DCHECK(io_.queue().outstanding() <= io_.command_count());
  counters_->commands.set(io_.command_count());
  counters_->commands_outstanding.set(io_.queue().outstanding());
  counters_->commands_peak.set(io_.queue().outstanding_peak());
  counters_->errors.set(io_.error_count());
  counters_->bad_completions.set(io_.queue().bad_completions());
}

}  // namespace bedplate
