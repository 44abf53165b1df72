#include "transport/shm/shm_operations.h"

#include <algorithm>
#include <new>

#include <sys/syscall.h>
#include <unistd.h>

#include "platform/log.h"
#include "platform/read_once.h"
#include "transport/shm/shm_provider.h"

namespace bedplate {
SendStatus ShmEndpoint::put(std::span<const std::byte> from, const RemoteMemory& to,
                            Completion* done) noexcept {
  Operation operation;
  operation.kind = OperationKind::kPut;
  operation.local = const_cast<std::byte*>(from.data());
  return start(operation, from.size(), to, done);
}

SendStatus ShmEndpoint::get(std::span<std::byte> into, const RemoteMemory& from,
                            Completion* done) noexcept {
  Operation operation;
  operation.kind = OperationKind::kGet;
  operation.local = into.data();
  return start(operation, into.size(), from, done);
}

SendStatus ShmEndpoint::fetch_add(const RemoteMemory& to, uint64_t addend, uint64_t* before,
                                  Completion* done) noexcept {
  Operation operation;
  operation.kind = OperationKind::kFetchAdd;
  operation.operand = addend;
  operation.before = before;
  return start(operation, sizeof(uint64_t), to, done);
}

SendStatus ShmEndpoint::compare_swap(const RemoteMemory& to, uint64_t expected, uint64_t desired,
                                     uint64_t* before, Completion* done) noexcept {
  Operation operation;
  operation.kind = OperationKind::kCompareSwap;
  operation.operand = desired;
  operation.expected = expected;
  operation.before = before;
  return start(operation, sizeof(uint64_t), to, done);
}

SendStatus ShmEndpoint::start(Operation& operation, uint64_t bytes, const RemoteMemory& remote,
                              Completion* done) noexcept {
  const SpinGuard guard(lock_, provider_.is_threaded_);
  if (!is_open_) return SendStatus::kGone;
  if (bytes > remote.bytes) return SendStatus::kTooLong;
  if (is_atomic(operation.kind) && remote.address % sizeof(uint64_t) != 0) {
    return SendStatus::kRefused;
  }
  operation.remote = remote.part(0, bytes);
  operation.done = done;
  if (provider_.is_reachable(peer_, operation.remote, operation.kind)) {
    do_here(operation);
    return SendStatus::kDone;
  }
  if (!is_atomic(operation.kind) && !is_pool_memory(remote.kind)) {
    if (const auto status = copy_once(operation); status != SendStatus::kAgain) return status;
  }
  return ask_target(operation);
}

// The description may come from the peer itself: this process must not do for it what it may not do
// on its own. What it may not the peer is asked to do, with its rights.
bool ShmProvider::is_reachable(uint32_t peer, const RemoteMemory& memory,
                               OperationKind kind) const noexcept {
  if (!is_pool_memory(memory.kind)) return false;
  const Segment* segment = shared_segment(pointer_to(memory.address), memory.bytes);
  if (segment == nullptr) return false;
  if (kind == OperationKind::kGet) return members_->may_read(peer, segment->number);
  return segment->is_writable && members_->may_write(peer, segment->number);
}

void ShmEndpoint::do_here(const Operation& operation) noexcept {
  std::byte* at = pointer_to(operation.remote.address);
  if (operation.kind == OperationKind::kPut) {
    copy_bytes(at, operation.local, operation.remote.bytes);
  } else if (operation.kind == OperationKind::kGet) {
    copy_bytes(operation.local, at, operation.remote.bytes);
  } else {
    const uint64_t before = apply_atomic(operation.kind, at, operation.operand, operation.expected);
    if (operation.before != nullptr) *operation.before = before;
  }
}

// Returns kAgain when single copy is not to be had: the target must do it.
SendStatus ShmEndpoint::copy_once(const Operation& operation) noexcept {
  if (!open_memory()) return SendStatus::kAgain;
  const RemoteMemory& remote = operation.remote;
  const ExposedRange range = {remote.address, remote.bytes, remote.key, 1};
  const CopyOutcome outcome = operation.kind == OperationKind::kPut
                                  ? memory_->write(operation.local, range, 0, remote.bytes)
                                  : memory_->read(operation.local, range, 0, remote.bytes);
  switch (outcome.end) {
    case CopyEnd::kDone: return SendStatus::kDone;
    case CopyEnd::kGone: return SendStatus::kGone;
    case CopyEnd::kRefused: break;
  }
  return SendStatus::kRefused;
}

SendStatus ShmEndpoint::ask_target(Operation& operation) noexcept {
  if (provider_.kind_ == GroupKind::kExchange) return SendStatus::kRefused;
  Operation* kept = provider_.keep_operation(*this, operation);
  if (kept == nullptr) return SendStatus::kAgain;
  if (!post_operation(*kept)) {
    provider_.forget_operation(*kept);
    return SendStatus::kAgain;
  }
  return SendStatus::kPending;
}

SendStatus ShmEndpoint::flush(Completion* done) noexcept {
  const SpinGuard guard(lock_, provider_.is_threaded_);
  if (!is_open_) return SendStatus::kGone;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // what was done here is visible there
  if (!provider_.has_operations(*this, UINT64_MAX)) return SendStatus::kDone;
  Operation operation;
  operation.is_flush = true;
  operation.done = done;
  return provider_.keep_operation(*this, operation) != nullptr ? SendStatus::kPending
                                                               : SendStatus::kAgain;
}

// How much of a put or get goes into its next record: what a message may have, and no more than
// there is room for in the reserve of the eager region, with what a mesh takes for its word. In the
// smallest regions there is no reserve (eager_region_bytes_min).
uint32_t ShmProvider::next_piece_bytes(const Operation& operation) const noexcept {
  if (is_atomic(operation.kind)) return 0;
  const uint64_t left = operation.remote.bytes - operation.bytes_done;
  const uint64_t word_bytes = kind_ == GroupKind::kMesh ? kCacheLineBytes : 0;
  const uint64_t room =
      std::max(eager_reserve_bytes_, sizeof(OperationRecord) + kOperationBytesMin + word_bytes) -
      word_bytes;
  return static_cast<uint32_t>(
      std::min({left, uint64_t{limits_.am_bytes_max}, room - sizeof(OperationRecord)}));
}

// Posts the record of what comes next.
bool ShmEndpoint::post_operation(Operation& operation) noexcept {
  const uint32_t bytes = provider_.next_piece_bytes(operation);
  const EagerRegion::Piece piece = provider_.take_eager(*this, sizeof(OperationRecord) + bytes);
  if (piece.memory == nullptr) return false;
  auto* record = new (piece.memory) OperationRecord;
  record->request = {operation.kind,
                     bytes,
                     operation.remote.address + operation.bytes_done,
                     operation.remote.kind,
                     operation.operand,
                     operation.expected};
  record->state.store(OperationState::kPosted, std::memory_order_relaxed);
  if (operation.kind == OperationKind::kPut) {
    copy_bytes(data_of(record), operation.local + operation.bytes_done, bytes);
  }
  const PayloadPlace place = {piece.offset};
  if (!post({SlotKind::kControl, static_cast<uint32_t>(ShmControl::kOperation), sizeof place,
             provider_.self_},
            reinterpret_cast<const std::byte*>(&place), sizeof place)) {
    provider_.cancel_eager(piece);
    return false;
  }
  operation.piece = piece;
  provider_.hold_eager(piece, peer_);
  return true;
}

Operation* ShmProvider::keep_operation(ShmEndpoint& endpoint, const Operation& operation) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  if (!operation_share_.may_take(endpoint.peer_)) return nullptr;
  Operation* place = std::begin(operations_);
  while (place->endpoint != nullptr) ++place;  // the share says that there is one
  *place = operation;
  place->endpoint = &endpoint;
  place->generation = endpoint.generation_;
  place->number = ++operation_number_;
  operation_share_.take(endpoint.peer_);
  operation_count_.fetch_add(1, std::memory_order_relaxed);
  return place;
}

void ShmProvider::forget_operation(Operation& operation) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  operation_share_.give_back(operation.endpoint->peer_);
  operation.endpoint = nullptr;  // from here on the place may be used anew
  operation_count_.fetch_sub(1, std::memory_order_relaxed);
}

ShmEndpoint* ShmProvider::endpoint_of(const Operation& operation) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  return operation.endpoint;
}

bool ShmProvider::has_operations(const ShmEndpoint& endpoint, uint64_t before) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  return std::any_of(std::begin(operations_), std::end(operations_), [&](const Operation& other) {
    return other.endpoint == &endpoint && !other.is_flush && other.number < before;
  });
}

uint32_t ShmProvider::poll_operations() noexcept {
  uint32_t count = 0;
  for (Operation& operation : operations_) {
    ShmEndpoint* endpoint = endpoint_of(operation);
    if (endpoint == nullptr) continue;
    Outcome outcome = Outcome::kDone;
    Completion* done = nullptr;
    {
      const SpinGuard guard(endpoint->lock_, is_threaded_);
      if (endpoint_of(operation) != endpoint) continue;  // it never began: there was no room
      if (!endpoint->advance(operation, &outcome)) {
        // What waits for room is work to do: nobody wakes this shard when there is some.
        if (!operation.is_flush && operation.piece.memory == nullptr) ++count;
        continue;
      }
      done = operation.done;
      forget_operation(operation);
    }
    ++count;
    if (done != nullptr) done->call(*done, outcome);
  }
  return count;
}

// Returns whether it has ended, and how.
bool ShmEndpoint::advance(Operation& operation, Outcome* outcome) noexcept {
  const bool is_there = is_open_ && operation.generation == generation_;
  if (operation.is_flush) {
    *outcome = is_there ? Outcome::kDone : Outcome::kUnknown;
    return !provider_.has_operations(*this, operation.number);
  }
  if (!is_there) {
    // Of what was never posted nothing happened; of what was, nobody can say.
    *outcome = operation.piece.memory == nullptr && operation.bytes_done == 0 ? Outcome::kNotDone
                                                                              : Outcome::kUnknown;
    // The peer may run on, and answer.
    if (operation.piece.memory != nullptr) {
      provider_.use_eager(operation.piece, {peer_, false, operation.generation, true});
    }
    return true;
  }
  if (operation.piece.memory == nullptr) {
    post_operation(operation);
    return false;
  }
  auto* record = reinterpret_cast<OperationRecord*>(operation.piece.memory);
  const OperationState state = record->state.load(std::memory_order_acquire);
  if (state == OperationState::kPosted) return false;
  const uint64_t bytes = provider_.next_piece_bytes(operation);
  if (state == OperationState::kDone && operation.kind == OperationKind::kGet) {
    copy_bytes(operation.local + operation.bytes_done, data_of(record), bytes);
  }
  if (state == OperationState::kDone && operation.before != nullptr) {
    *operation.before = read_once<uint64_t>(&record->result);
  }
  provider_.cancel_eager(operation.piece);
  operation.piece = {};
  if (state != OperationState::kDone) {
    *outcome = operation.bytes_done == 0 ? Outcome::kNotDone : Outcome::kUnknown;
    return true;
  }
  operation.bytes_done += bytes;
  if (is_atomic(operation.kind) || operation.bytes_done == operation.remote.bytes) return true;
  post_operation(operation);
  return false;
}

// ---- Single copy ----

// Opens the peer's memory the first time that it is wanted. What does not work is said once, and
// the target copies from then on.
bool ShmEndpoint::open_memory() noexcept {
  if (memory_state_ == MemoryState::kUntried && provider_.single_copy_ != nullptr) {
    memory_.reset(new (std::nothrow) PeerMemory);
    if (!memory_) return false;  // perhaps another time
    memory_state_ = MemoryState::kClosed;
    const uint32_t pid = provider_.members_->pid(peer_);
    pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    const auto card = read_once<SingleCopyCard>(&provider_.segment_.card(peer_));
    const Result<void> attached =
        provider_.single_copy_->attach({static_cast<pid_t>(pid), pidfd_.number()}, card, *memory_);
    if (attached.ok()) memory_state_ = MemoryState::kOpen;
    else provider_.report_single_copy(attached.error());
  }
  return memory_state_ == MemoryState::kOpen;
}

void ShmProvider::report_single_copy(const Error& error) noexcept {
  if (single_copy_was_reported_) return;
  single_copy_was_reported_ = true;
  log_error(error);
  BP_LOG_INFO("private memory of members is copied through the pool instead");
}

}  // namespace bedplate
