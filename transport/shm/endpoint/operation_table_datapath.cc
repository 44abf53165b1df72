#include <algorithm>
#include <iterator>
#include <new>

#include "platform/read_once.h"
#include "transport/shm/endpoint/operation_table.h"

namespace bedplate {

void OperationTable::create(OutgoingParts& parts) {
  BP_ASSERT(parts_ == nullptr);
  parts_ = &parts;
  share_ = PeerShare(parts.group.member_count(), kOperationCountMax, kOperationReserveCount);
}

SendStatus OperationTable::start(OutgoingPath& path, const RemoteOperation& wanted) noexcept {
  BP_DCHECK(path.is_open());
  if (!parts_->stock.is_there()) return SendStatus::kRefused;
  Operation operation;
  operation.kind = wanted.kind;
  operation.remote = wanted.remote.part(0, wanted.bytes);
  operation.local = wanted.local;
  operation.operand = wanted.operand;
  operation.expected = wanted.expected;
  operation.before = wanted.before;
  operation.done = wanted.done;
  Operation* kept = keep(path, operation);
  if (kept == nullptr) return SendStatus::kAgain;
  if (!post(*kept, path)) {
    forget(*kept);
    return SendStatus::kAgain;
  }
  return SendStatus::kPending;
}

SendStatus OperationTable::start_flush(OutgoingPath& path, Completion* done) noexcept {
  BP_DCHECK(path.is_open());
  if (!has_any(path, UINT64_MAX)) return SendStatus::kDone;
  Operation operation;
  operation.is_flush = true;
  operation.done = done;
  return keep(path, operation) != nullptr ? SendStatus::kPending : SendStatus::kAgain;
}

// The size of the next record's data, for a put or get: at most a message's, and no more than fits
// into the reserve of the eager region, beside the slot's bytes there. In the smallest regions the
// reserve is less than a record (eager_region_bytes_min).
uint32_t OperationTable::next_piece_bytes(const Operation& operation) const noexcept {
  if (is_atomic(operation.kind)) return 0;
  BP_DCHECK(operation.bytes_done <= operation.remote.bytes);
  const uint64_t left = operation.remote.bytes - operation.bytes_done;
  const uint64_t slot_bytes = parts_->group.traits().slot_eager_bytes;
  const uint64_t room = std::max(parts_->stock.reserve_bytes(),
                                 sizeof(OperationRecord) + kOperationBytesMin + slot_bytes) -
                        slot_bytes;
  return static_cast<uint32_t>(
      std::min({left, uint64_t{parts_->am_bytes_max}, room - sizeof(OperationRecord)}));
}

bool OperationTable::post(Operation& operation, OutgoingPath& path) noexcept {
  BP_DCHECK(operation.piece.memory == nullptr && !operation.is_flush);
  const uint32_t bytes = next_piece_bytes(operation);
  const EagerRegion::Piece piece = path.take_eager(sizeof(OperationRecord) + bytes);
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
  const PayloadOffset offset = {piece.offset};
  if (!path.post_control(ShmControl::kOperation, &offset, sizeof offset)) {
    parts_->stock.cancel(piece);
    return false;
  }
  operation.piece = piece;
  parts_->stock.hold(piece, path.peer());
  return true;
}

Operation* OperationTable::keep(OutgoingPath& path, const Operation& operation) noexcept {
  BP_DCHECK_SLOW(is_valid());
  if (!share_.may_take(path.peer())) return nullptr;
  Operation* entry = std::begin(operations_);
  while (entry->path != nullptr) ++entry;  // the share has confirmed that one is free
  BP_ASSERT(entry < std::end(operations_));
  *entry = operation;
  entry->path = &path;
  entry->generation = path.generation();
  entry->number = ++last_number_;
  share_.take(path.peer());
  ++operation_count_;
  BP_DCHECK_SLOW(is_valid());
  return entry;
}

void OperationTable::forget(Operation& operation) noexcept {
  BP_ASSERT(operation.path != nullptr);
  share_.give_back(operation.path->peer());
  operation.path = nullptr;  // from here on the entry may be reused
  --operation_count_;
  BP_DCHECK_SLOW(is_valid());
}

bool OperationTable::has_any(const OutgoingPath& path, uint64_t before) const noexcept {
  return std::any_of(std::begin(operations_), std::end(operations_), [&](const Operation& other) {
    return other.path == &path && !other.is_flush && other.number < before;
  });
}

uint32_t OperationTable::poll() noexcept {
  uint32_t count = 0;
  for (Operation& operation : operations_) {
    if (operation.path == nullptr) continue;
    Outcome outcome = Outcome::kDone;
    if (!advance(operation, *operation.path, &outcome)) {
      // An operation that waits for space counts as work: nobody wakes this shard when there is
      // space.
      if (!operation.is_flush && operation.piece.memory == nullptr) ++count;
      continue;
    }
    Completion* done = operation.done;
    forget(operation);
    ++count;
    if (done != nullptr) done->call(*done, outcome);
  }
  return count;
}

bool OperationTable::advance(Operation& operation, OutgoingPath& path, Outcome* outcome) noexcept {
  const bool is_there = path.is_open() && operation.generation == path.generation();
  if (operation.is_flush) {
    *outcome = is_there ? Outcome::kDone : Outcome::kUnknown;
    return !has_any(path, operation.number);
  }
  if (!is_there) {
    // Never posted: not done. Posted: unknown.
    *outcome = operation.piece.memory == nullptr && operation.bytes_done == 0 ? Outcome::kNotDone
                                                                              : Outcome::kUnknown;
    // The peer may still run, and answer: its record stays in use.
    if (operation.piece.memory != nullptr) {
      parts_->stock.set_use(
          operation.piece,
          {.member = path.peer(), .index = operation.generation, .is_answer = true, .path = &path});
    }
    return true;
  }
  if (operation.piece.memory != nullptr) return take_answer(operation, path, outcome);
  post(operation, path);
  return false;
}

bool OperationTable::take_answer(Operation& operation, OutgoingPath& path,
                                 Outcome* outcome) noexcept {
  auto* record = reinterpret_cast<OperationRecord*>(operation.piece.memory);
  const OperationState state = record->state.load(std::memory_order_acquire);
  if (state == OperationState::kPosted) return false;
  const uint64_t bytes = next_piece_bytes(operation);
  if (state == OperationState::kDone && operation.kind == OperationKind::kGet) {
    copy_bytes(operation.local + operation.bytes_done, data_of(record), bytes);
  }
  if (state == OperationState::kDone && operation.before != nullptr) {
    *operation.before = read_once<uint64_t>(&record->result);
  }
  parts_->stock.cancel(operation.piece);
  operation.piece = {};
  // The target refused this part; earlier parts are done.
  if (state != OperationState::kDone) {
    *outcome = operation.bytes_done == 0 ? Outcome::kNotDone : Outcome::kUnknown;
    return true;
  }
  operation.bytes_done += bytes;
  if (is_atomic(operation.kind) || operation.bytes_done == operation.remote.bytes) return true;
  post(operation, path);
  return false;
}

bool OperationTable::is_valid() const noexcept {
  uint32_t count = 0;
  for (const Operation& operation : operations_) {
    if (operation.path == nullptr) continue;
    ++count;
    if (operation.number == 0 || operation.number > last_number_) return false;
    if (share_.held_by(operation.path->peer()) == 0) return false;
  }
  return count == operation_count_ && share_.free_count() == kOperationCountMax - count;
}

}  // namespace bedplate
