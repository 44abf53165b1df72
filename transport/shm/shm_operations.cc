#include "transport/shm/shm_operations.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <sys/syscall.h>
#include <unistd.h>

#include "platform/log.h"
#include "transport/shm/shm_provider.h"

namespace bedplate {
namespace {

// glibc's way of copying more than this at once is slower than this several times.
constexpr uint64_t kCopyPieceBytes = 64 * kKiB;

void copy_bytes(std::byte* to, const std::byte* from, uint64_t bytes) noexcept {
  for (uint64_t at = 0; at < bytes; at += kCopyPieceBytes) {
    std::memcpy(to + at, from + at, std::min(kCopyPieceBytes, bytes - at));
  }
}

std::byte* pointer_to(uint64_t address) noexcept { return reinterpret_cast<std::byte*>(address); }

// The data of a put or get lie behind its record.
std::byte* data_of(OperationRecord* record) noexcept {
  return reinterpret_cast<std::byte*>(record + 1);
}

bool is_atomic(OperationKind kind) noexcept {
  return kind == OperationKind::kFetchAdd || kind == OperationKind::kCompareSwap;
}

uint64_t apply_atomic(OperationKind kind, std::byte* at, uint64_t operand,
                      uint64_t expected) noexcept {
  auto* word = reinterpret_cast<uint64_t*>(at);
  if (kind == OperationKind::kFetchAdd) return __atomic_fetch_add(word, operand, __ATOMIC_ACQ_REL);
  __atomic_compare_exchange_n(word, &expected, operand, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;  // what was there, whether it was the same or not
}

}  // namespace

// ---- The initiator ----

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
  const CopyOutcome outcome =
      operation.kind == OperationKind::kPut
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
// half the eager region, so that the record and, in a mesh, its word always fit in.
uint32_t ShmProvider::next_piece_bytes(const Operation& operation) const noexcept {
  if (is_atomic(operation.kind)) return 0;
  const uint64_t half = segment_.layout().eager_region_bytes() / 2;
  const uint64_t left = operation.remote.bytes - operation.bytes_done;
  return static_cast<uint32_t>(
      std::min({left, uint64_t{limits_.am_bytes_max}, half - sizeof(OperationRecord)}));
}

// Posts the record of what comes next.
bool ShmEndpoint::post_operation(Operation& operation) noexcept {
  const uint32_t bytes = provider_.next_piece_bytes(operation);
  const EagerRegion::Piece piece =
      provider_.take_eager(*this, sizeof(OperationRecord) + bytes);
  if (piece.memory == nullptr) return false;
  auto* record = new (piece.memory) OperationRecord;
  record->kind = operation.kind;
  record->bytes = bytes;
  record->address = operation.remote.address + operation.bytes_done;
  record->exposure = operation.remote.kind;
  record->operand = operation.operand;
  record->expected = operation.expected;
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
  return true;
}

Operation* ShmProvider::keep_operation(ShmEndpoint& endpoint,
                                       const Operation& operation) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  for (Operation& place : operations_) {
    if (place.endpoint != nullptr) continue;
    place = operation;
    place.endpoint = &endpoint;
    place.generation = endpoint.generation_;
    place.number = ++operation_number_;
    operation_count_.fetch_add(1, std::memory_order_relaxed);
    return &place;
  }
  return nullptr;
}

void ShmProvider::forget_operation(Operation& operation) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
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
    if (operation.piece.memory != nullptr) provider_.cancel_eager(operation.piece);
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
    *operation.before = record->result;
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

// ---- The target ----

void ShmProvider::handle_operation(ShmEndpoint& from, const std::byte* body) noexcept {
  PayloadPlace place;
  std::memcpy(&place, body, sizeof place);
  const std::span<std::byte> region = segment_.eager_region(from.peer_);
  if (kind_ == GroupKind::kExchange || place.offset % kCacheLineBytes != 0 ||
      sizeof(OperationRecord) > region.size() ||
      place.offset > region.size() - sizeof(OperationRecord)) {
    return cut_off(from, "an operation outside its eager region");
  }
  auto* shared = reinterpret_cast<OperationRecord*>(region.data() + place.offset);
  // Once: it may change.
  const OperationKind kind = shared->kind;
  const uint32_t bytes = shared->bytes;
  const uint64_t address = shared->address;
  const uint64_t exposure_kind = shared->exposure;
  const uint64_t data_offset = place.offset + sizeof(OperationRecord);
  if (kind > OperationKind::kCompareSwap || bytes > region.size() - data_offset) {
    return cut_off(from, "an operation of no kind, or longer than its eager region");
  }
  const uint64_t touched = is_atomic(kind) ? sizeof(uint64_t) : bytes;
  OperationState state = OperationState::kRefused;
  const SpinGuard guard(lock_, is_threaded_);  // to the end: whoever withdraws waits for it
  if (find_exposure(from, exposure_kind, address, touched) != nullptr &&
      (!is_atomic(kind) || address % sizeof(uint64_t) == 0)) {
    std::byte* data = region.data() + data_offset;
    if (kind == OperationKind::kPut) copy_bytes(pointer_to(address), data, bytes);
    else if (kind == OperationKind::kGet) copy_bytes(data, pointer_to(address), bytes);
    else shared->result = apply_atomic(kind, pointer_to(address), shared->operand,
                                       shared->expected);
    state = OperationState::kDone;
  }
  shared->state.store(state, std::memory_order_release);
  from.bell_.ring();
}

const Exposure* ShmProvider::find_exposure(const ShmEndpoint& peer, uint64_t kind,
                                           uint64_t address, uint64_t bytes) const noexcept {
  const uint32_t index = exposure_index(kind);
  if (index >= kExposureCountMax) return nullptr;
  const Exposure& exposure = exposures_[index];
  if (exposure.use != exposure_use(kind) || exposure.peer != peer.peer_ ||
      exposure.generation != peer.generation_ || !exposure.has(address, bytes)) {
    return nullptr;
  }
  return &exposure;
}

Result<RemoteMemory> ShmEndpoint::expose(std::span<std::byte> memory) {
  const SpinGuard own_guard(lock_, provider_.is_threaded_);  // whose generation it is
  const SpinGuard guard(provider_.lock_, provider_.is_threaded_);
  const Segment* segment = provider_.shared_segment(memory.data(), memory.size());
  const bool is_pool = segment != nullptr;
  Error error;
  error.set_doing("exposing memory to member %u", peer_);
  if (is_pool && !segment->is_writable) {
    error.set_answer("%s is mapped read-only here", segment->owner.text);
    return error.set_cure("let its owner expose it, or grant it writable ([[process]] write)");
  }
  for (uint32_t i = 0; i < kExposureCountMax; ++i) {
    Exposure& exposure = provider_.exposures_[i];
    if (exposure.peer != UINT32_MAX) continue;
    RemoteMemory remote = {reinterpret_cast<uintptr_t>(memory.data()), memory.size(), 0, 0};
    if (!is_pool && provider_.single_copy_ != nullptr) {
      auto range = provider_.single_copy_->expose(memory.data(), memory.size(), true);
      if (!range.ok()) return range.error();
      remote.key = range.value().key;
    }
    exposure = {remote.address, remote.bytes, remote.key, generation_, peer_,
                exposure.use + 1};
    remote.kind = pack_exposure(is_pool, i, exposure.use);
    return remote;
  }
  error.set_answer("%u pieces are exposed already", kExposureCountMax);
  return error.set_cure("withdraw some");
}

void ShmEndpoint::withdraw(const RemoteMemory& memory) noexcept {
  const SpinGuard guard(provider_.lock_, provider_.is_threaded_);
  const uint32_t index = exposure_index(memory.kind);
  BP_ASSERT(index < kExposureCountMax);
  Exposure& exposure = provider_.exposures_[index];
  BP_ASSERT(exposure.peer == peer_ && exposure.use == exposure_use(memory.kind));
  if (!is_pool_memory(memory.kind) && provider_.single_copy_ != nullptr) {
    provider_.single_copy_->withdraw({memory.address, memory.bytes, memory.key, 1});
  }
  exposure.peer = UINT32_MAX;
}

// ---- Single copy ----

// Opens the peer's memory the first time that it is wanted. What does not work is said once, and
// the target copies from then on.
bool ShmEndpoint::open_memory() noexcept {
  if (memory_state_ == MemoryState::kUntried && provider_.single_copy_ != nullptr) {
    memory_state_ = MemoryState::kClosed;
    const uint32_t pid = provider_.members_->pid(peer_);
    pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    const SingleCopyCard card = provider_.segment_.card(peer_);  // once: it may change
    memory_ = std::make_unique<PeerMemory>();
    const Result<void> attached = provider_.single_copy_->attach(
        {static_cast<pid_t>(pid), pidfd_.number()}, card, *memory_);
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
