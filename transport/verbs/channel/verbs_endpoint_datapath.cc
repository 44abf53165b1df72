// The sending half: messages, loans and operations are listed here. They are posted when the shard
// polls, or when a list is full.
#include <algorithm>
#include <cstring>

#include "platform/usdt.h"
#include "transport/verbs/channel/verbs_endpoint.h"

namespace bedplate {

SendStatus VerbsEndpoint::am_send(AmId id, std::span<const std::byte> payload) noexcept {
  BP_DREQUIRE_THREAD(parts_.is_own_thread(), "Endpoint::am_send");
  if (payload.size() > parts_.limits.am_bytes_max) return SendStatus::kTooLong;
  if (BP_UNLIKELY(!channel_.may_send)) return channel_.status_when_down();
  if (!outgoing_.has_credit()) return SendStatus::kAgain;
  BP_USDT(verbs_send, id, payload.size());
  std::copy(payload.begin(), payload.end(), outgoing_.next_body());
  outgoing_.send(VerbsMessageKind::kMessage, id, static_cast<uint32_t>(payload.size()));
  mark_dirty();
  parts_.counters->sent.add(1);
  return SendStatus::kDone;
}

SendStatus VerbsEndpoint::am_send_loan(AmId id, std::span<const std::byte> header,
                                       std::span<std::byte> block, Completion* returned) noexcept {
  BP_DREQUIRE_THREAD(parts_.is_own_thread(), "Endpoint::am_send_loan");
  BP_KEEPS_VALID(*this);
  if (header.size() > kVerbsLoanHeaderBytesMax) return SendStatus::kTooLong;
  if (BP_UNLIKELY(!channel_.may_send)) return channel_.status_when_down();
  if (!outgoing_.has_credit() || !lender_.has_room()) return SendStatus::kAgain;
  VerbsLoanBody body = {};
  const SendStatus lent = lender_.lend(block, returned, body);
  if (lent != SendStatus::kPending) return lent;
  BP_USDT(verbs_lend, id, block.size());
  std::byte* at = outgoing_.next_body();
  std::memcpy(at, &body, sizeof body);
  std::copy(header.begin(), header.end(), at + sizeof body);
  outgoing_.send(VerbsMessageKind::kLoan, id, static_cast<uint32_t>(sizeof body + header.size()));
  mark_dirty();
  parts_.counters->sent.add(1);
  return SendStatus::kPending;
}

SendStatus VerbsEndpoint::start(const RemoteOperation& operation) noexcept {
  BP_DREQUIRE_THREAD(parts_.is_own_thread(), "Endpoint::start");
  const SendStatus status = operations_.start(operation);
  if (status == SendStatus::kPending) mark_dirty();
  return status;
}

// The flush also ends after the invalidation of every window that was withdrawn before it.
SendStatus VerbsEndpoint::flush(Completion* done) noexcept {
  BP_DREQUIRE_THREAD(parts_.is_own_thread(), "Endpoint::flush");
  if (BP_UNLIKELY(!channel_.may_send)) return channel_.status_when_down();
  if (windows_.has_given_up()) {
    windows_.invalidate();
    mark_dirty();
  }
  if (windows_.has_given_up() || !channel_.has_room()) return SendStatus::kAgain;
  if (!operations_.needs_flush() && windows_.invalidations_out() == 0) return SendStatus::kDone;
  operations_.list_flush(done);
  mark_dirty();
  return SendStatus::kPending;
}

void VerbsEndpoint::withdraw(const RemoteMemory& memory) noexcept {
  BP_DCHECK(parts_.is_own_thread());
  BP_KEEPS_VALID(*this);
  if (!channel_.may_send) return;
  if (!is_reach(memory, Reach::kConnection, channel_.link.packet_number)) return;
  if (!windows_.withdraw(memory.key)) return;
  windows_.invalidate();
  mark_dirty();
}

void VerbsEndpoint::mark_dirty() noexcept {
  if (is_dirty_) return;
  is_dirty_ = true;
  parts_.dirty.add(*this);
}

void VerbsEndpoint::post_batch() noexcept {
  BP_DCHECK(parts_.is_own_thread() && is_dirty_);
  BP_KEEPS_VALID(*this);
  if (channel_.may_send) {
    if (windows_.has_given_up()) windows_.invalidate();
    if (borrower_.has_returns()) borrower_.send_returns();
    if (outgoing_.owes_acknowledgement()) outgoing_.acknowledge();
    channel_.queue.post();
    if (BP_UNLIKELY(channel_.queue.has_failed())) {
      break_life("the device accepts no requests", false);
    }
  }
  is_dirty_ = false;  // only now: all listed requests are posted
}

SendStatus VerbsEndpoint::send_datagram(AmId id,
                                        std::span<const std::byte> payload) const noexcept {
  BP_DCHECK(parts_.is_own_thread());
  if (!channel_.may_send) return channel_.status_when_down();
  if (!parts_.datagrams.is_open()) return SendStatus::kRefused;
  return parts_.datagrams.send(channel_.link.index, id, payload);
}

uint32_t VerbsEndpoint::datagram_bytes_max() const noexcept {
  if (!channel_.may_send || !parts_.datagrams.is_open()) return 0;
  return parts_.datagrams.bytes_max(channel_.link.index);
}

}  // namespace bedplate
