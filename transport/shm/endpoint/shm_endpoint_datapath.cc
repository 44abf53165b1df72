#include <atomic>

#include "platform/assert.h"
#include "platform/usdt.h"
#include "transport/shm/endpoint/shm_endpoint.h"

namespace bedplate {

SendStatus ShmEndpoint::am_send(AmId id, std::span<const std::byte> payload) noexcept {
  BP_DREQUIRE_THREAD(is_own_thread(), "Endpoint::am_send");
  if (BP_UNLIKELY(!path_.is_open())) return SendStatus::kGone;
  const SendStatus status = path_.send(id, payload);
  BP_USDT(shm_send, id, payload.size(), status);
  return status;
}

bool ShmEndpoint::has_room() noexcept {
  BP_DREQUIRE_THREAD(is_own_thread(), "Endpoint::has_room");
  return !path_.is_open() || path_.has_room();
}

SendStatus ShmEndpoint::am_send_loan(AmId id, std::span<const std::byte> header,
                                     std::span<std::byte> block, Completion* returned) noexcept {
  BP_DREQUIRE_THREAD(is_own_thread(), "Endpoint::am_send_loan");
  if (BP_UNLIKELY(!path_.is_open())) return SendStatus::kGone;
  if (header.size() > kLoanHeaderBytesMax) return SendStatus::kTooLong;
  const GroupView& group = parts_.outgoing.group;
  const Segment* segment = group.shared_segment(block.data(), block.size());
  if (segment == nullptr || !group.members().may_read(peer(), segment->number)) {
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
  if (!path_.post({SlotKind::kLoan, id, sizeof descriptor, group.self()},
                  reinterpret_cast<const std::byte*>(&descriptor), sizeof descriptor)) {
    parts_.lender.cancel(lent.loan, peer());
    return SendStatus::kAgain;
  }
  BP_USDT(shm_lend, id, block.size());
  return SendStatus::kPending;
}

// ---- Puts, gets and atomics ----

SendStatus ShmEndpoint::start(const RemoteOperation& operation) noexcept {
  BP_DREQUIRE_THREAD(is_own_thread(), "Endpoint::start");
  if (!path_.is_open()) return SendStatus::kGone;
  if (operation.bytes > operation.remote.bytes) return SendStatus::kTooLong;
  if (is_atomic(operation.kind) && operation.remote.address % sizeof(uint64_t) != 0) {
    return SendStatus::kRefused;
  }
  if (is_reachable(operation)) {
    do_here(operation);
    return SendStatus::kDone;
  }
  // The kernel, too, respects the target's rights: it writes through the target's mappings.
  if (!is_atomic(operation.kind)) {
    if (const auto status = copy_.copy(operation); status != SendStatus::kAgain) return status;
  }
  return parts_.operations.start(path_, operation);
}

// The description may come from the peer itself: this process must not do for the peer anything
// that the peer may not do on its own. If the peer or this process lacks the right, the peer does
// the operation, with its own rights.
bool ShmEndpoint::is_reachable(const RemoteOperation& operation) const noexcept {
  if (!is_pool_memory(operation.remote.kind)) return false;
  BP_DCHECK(operation.bytes <= operation.remote.bytes);
  const GroupView& group = parts_.outgoing.group;
  const Segment* segment =
      group.shared_segment(pointer_to(operation.remote.address), operation.bytes);
  if (segment == nullptr) return false;
  if (operation.kind == OperationKind::kGet) {
    return group.members().may_read(peer(), segment->number);
  }
  return segment->is_writable && group.members().may_write(peer(), segment->number);
}

void ShmEndpoint::do_here(const RemoteOperation& operation) noexcept {
  std::byte* at = pointer_to(operation.remote.address);
  BP_DCHECK(is_atomic(operation.kind) || operation.bytes == 0 || operation.local != nullptr);
  BP_DCHECK(!is_atomic(operation.kind) || operation.remote.address % sizeof(uint64_t) == 0);
  if (operation.kind == OperationKind::kPut) {
    copy_bytes(at, operation.local, operation.bytes);
  } else if (operation.kind == OperationKind::kGet) {
    copy_bytes(operation.local, at, operation.bytes);
  } else {
    const uint64_t before = apply_atomic(operation.kind, at, operation.operand, operation.expected);
    if (operation.before != nullptr) *operation.before = before;
  }
}

SendStatus ShmEndpoint::flush(Completion* done) noexcept {
  BP_DREQUIRE_THREAD(is_own_thread(), "Endpoint::flush");
  if (!path_.is_open()) return SendStatus::kGone;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // operations done here are visible there
  return parts_.operations.start_flush(path_, done);
}

}  // namespace bedplate
