#include <atomic>

#include "transport/shm/shm_endpoint.h"

namespace bedplate {

SendStatus ShmEndpoint::am_send(AmId id, std::span<const std::byte> payload) noexcept {
  const SpinGuard guard = way_.guard();
  if (BP_UNLIKELY(!way_.is_open())) return SendStatus::kGone;
  return way_.send(id, payload);
}

bool ShmEndpoint::has_room() noexcept {
  const SpinGuard guard = way_.guard();
  return !way_.is_open() || way_.has_room();
}

SendStatus ShmEndpoint::am_send_loan(AmId id, std::span<const std::byte> header,
                                     std::span<std::byte> block, Completion* returned) noexcept {
  const SpinGuard guard = way_.guard();
  if (BP_UNLIKELY(!way_.is_open())) return SendStatus::kGone;
  if (header.size() > kLoanHeaderBytesMax) return SendStatus::kTooLong;
  const ShmPlace& place = parts_.outgoing.place;
  const Segment* segment = place.shared_segment(block.data(), block.size());
  if (segment == nullptr || !place.members().may_read(peer(), segment->number)) {
    return SendStatus::kRefused;
  }
  const LoanTable::Lent lent = parts_.lender.lend(block.data(), returned, peer());
  if (lent.loan == UINT32_MAX) return SendStatus::kAgain;
  LoanDescriptor descriptor;
  descriptor.loan = lent.loan;
  descriptor.mark = lent.mark;
  descriptor.address = reinterpret_cast<uintptr_t>(block.data());
  descriptor.bytes = block.size();
  descriptor.header_bytes = static_cast<uint16_t>(header.size());
  copy_inline(descriptor.header, header.data(), header.size());
  if (!way_.post({SlotKind::kLoan, id, sizeof descriptor, place.self()},
                 reinterpret_cast<const std::byte*>(&descriptor), sizeof descriptor)) {
    parts_.lender.cancel(lent.loan, peer());
    return SendStatus::kAgain;
  }
  return SendStatus::kPending;
}

// ---- Puts, gets and atomics ----

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
  const SpinGuard guard = way_.guard();
  if (!way_.is_open()) return SendStatus::kGone;
  if (bytes > remote.bytes) return SendStatus::kTooLong;
  if (is_atomic(operation.kind) && remote.address % sizeof(uint64_t) != 0) {
    return SendStatus::kRefused;
  }
  operation.remote = remote.part(0, bytes);
  operation.done = done;
  if (is_reachable(operation.remote, operation.kind)) {
    do_here(operation);
    return SendStatus::kDone;
  }
  // The kernel, too, keeps to what the target may do: it writes through the target's mappings.
  if (!is_atomic(operation.kind)) {
    if (const auto status = copy_.copy(operation); status != SendStatus::kAgain) return status;
  }
  return parts_.operations.start(way_, operation);
}

// The description may come from the peer itself: this process must not do for it what it may not do
// on its own. What it may not the peer is asked to do, with its rights.
bool ShmEndpoint::is_reachable(const RemoteMemory& memory, OperationKind kind) const noexcept {
  if (!is_pool_memory(memory.kind)) return false;
  const ShmPlace& place = parts_.outgoing.place;
  const Segment* segment = place.shared_segment(pointer_to(memory.address), memory.bytes);
  if (segment == nullptr) return false;
  if (kind == OperationKind::kGet) return place.members().may_read(peer(), segment->number);
  return segment->is_writable && place.members().may_write(peer(), segment->number);
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

SendStatus ShmEndpoint::flush(Completion* done) noexcept {
  const SpinGuard guard = way_.guard();
  if (!way_.is_open()) return SendStatus::kGone;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // what was done here is visible there
  return parts_.operations.start_flush(way_, done);
}

}  // namespace bedplate
