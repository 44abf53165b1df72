#include "transport/uring/polled_files.h"

#include <algorithm>
#include <cerrno>
#include <sched.h>
#include <vector>

#include "platform/assert.h"
#include "platform/clock.h"
#include "transport/uring/uring_files.h"

namespace bedplate {

bool PolledFiles::is_valid() const noexcept {
  if (is_registered_ && (!is_created_ || files_ == nullptr)) return false;
  return in_flight_count_ <= (is_registered_ ? operation_count_max_ : 0);
}

Result<void> PolledFiles::create(const EventLoop& loop, PinnedPool& pool,
                                 uint32_t operation_count_max, Counter& system_calls) {
  BP_ASSERT(!is_created_ && operation_count_max > 0);
  BP_DCHECK(loop.is_own_thread());
  loop_ = &loop;
  system_calls_ = &system_calls;
  operation_count_max_ = operation_count_max;
  io_uring_params parameters = {};
  parameters.flags = IORING_SETUP_IOPOLL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN |
                     IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
  const uint32_t entries = std::min(operation_count_max, 4096U);
  parameters.cq_entries = std::max(operation_count_max, 2 * entries);
  const int outcome = io_uring_queue_init_params(entries, &ring_, &parameters);
  if (outcome != 0) {
    errno = -outcome;
    return error_from_errno("setting up io_uring for polled files")
        .set_cure(
            outcome == -ENOSYS || outcome == -EPERM
                ? "allow io_uring (sysctl kernel.io_uring_disabled=0), or leave \"polled\" out"
                : "leave \"polled\" out");
  }
  is_created_ = true;
  BP_TRY(try_ring(ring_));
  BP_TRY(hold_quiet_pipe(ring_));
  io_uring_register_ring_fd(&ring_);  // saves a look-up at each call; optional
  return keys_.create(pool, device_);
}

void PolledFiles::destroy() noexcept {
  if (!is_created_) return;
  BP_DCHECK(loop_->is_own_thread());
  BP_ASSERT(in_flight_count_ == 0 && !is_registered_);
  keys_.destroy();
  io_uring_queue_exit(&ring_);
  is_created_ = false;
}

// Registers the polled files at their index among the shard's files; other files have no entry.
Result<void> PolledFiles::open(Files& files, const KeyTable&, uint32_t operation_count_max) {
  BP_DCHECK(loop_ != nullptr && loop_->is_own_thread());
  BP_ASSERT(is_created_ && files_ == nullptr && operation_count_max <= operation_count_max_);
  files_ = &files;
  std::vector<int> numbers;
  for (const File& file : files.all()) numbers.push_back(file.is_polled() ? file.fd() : -1);
  const int outcome =
      io_uring_register_files(&ring_, numbers.data(), static_cast<unsigned>(numbers.size()));
  is_registered_ = outcome == 0;
  if (is_registered_) return {};
  errno = -outcome;
  return error_from_errno("registering %zu files with a polled ring", numbers.size())
      .set_cure("raise the limit of open files (ulimit -n), or leave \"polled\" out");
}

// Unregisters the files now: the kernel tears rings down long after they were closed.
void PolledFiles::close(bool leaves_operations) noexcept {
  if (!is_registered_ || leaves_operations) return;
  BP_DCHECK(loop_->is_own_thread() && in_flight_count_ == 0);
  const int outcome = io_uring_unregister_files(&ring_);
  BP_ASSERT(outcome == 0);  // fails if the ring was closed before, or belongs to another thread
  is_registered_ = false;
}

void PolledFiles::issue(FileOperation& operation) noexcept {
  BP_DCHECK(loop_->is_own_thread());
  BP_KEEPS_VALID(*this);
  BP_DCHECK(is_registered_ && operation.file->is_polled() && !operation.is_durable);
  io_uring_sqe& entry = next_ring_entry(ring_, *system_calls_);
  prepare_move(entry, keys_, operation);
  entry.flags |= IOSQE_FIXED_FILE;
  entry.user_data = reinterpret_cast<uint64_t>(&operation);
  ++in_flight_count_;
}

// One system call submits issued operations, and polls for the drive's completions.
uint32_t PolledFiles::reap(uint32_t budget) noexcept {
  BP_KEEPS_VALID(*this);
  io_uring_submit_and_get_events(&ring_);
  system_calls_->add(1);
  uint32_t count = 0;
  // Asks cq_ready first: peek alone would call the kernel once more if there is no completion.
  for (; count < budget && io_uring_cq_ready(&ring_) > 0; ++count) {
    io_uring_cqe* completion = nullptr;
    if (io_uring_peek_cqe(&ring_, &completion) != 0) break;
    auto* operation = reinterpret_cast<FileOperation*>(completion->user_data);
    const int32_t result = completion->res;
    io_uring_cqe_seen(&ring_, completion);
    BP_ASSERT(in_flight_count_ > 0);
    --in_flight_count_;
    BP_DCHECK(operation->is_in_flight && operation->is_polled);
    files_->handle(*operation, result);
  }
  return count;
}

uint32_t PolledFiles::poll(uint32_t budget) noexcept {
  BP_DCHECK(loop_ != nullptr && loop_->is_own_thread());
  if (in_flight_count_ == 0) return 0;
  return std::max(reap(budget), 1U);
}

bool PolledFiles::wait(uint64_t deadline_ns) noexcept {
  BP_DCHECK(loop_->is_own_thread() && in_flight_count_ > 0);
  while (reap(UINT32_MAX) == 0) {
    if (monotonic_ns() >= deadline_ns) return false;
    sched_yield();
  }
  return true;
}

}  // namespace bedplate
