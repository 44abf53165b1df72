// The receiving half: messages from one peer, and the ends of requests to it.
//
// Headers are copies (verbs_provider_datapath.cc), and are checked before use; each part does the
// same with the bodies that it takes. A peer that sends nonsense is cut off.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/usdt.h"
#include "transport/verbs/channel/verbs_endpoint.h"

namespace bedplate {
namespace {

// Whether the peer's device refused before it did anything: then neither this request nor any after
// it was done. Other errors may come in the middle of a request.
bool is_refusal(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_MW_BIND_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR: return true;
    default: return false;
  }
}

// Whether a message was longer than its receive. On some devices LOC_QP_OP_ERR says so. The code
// also stands for a bad receive, but all receives are alike.
bool is_too_long(ibv_wc_status status, const DeviceQuirks& quirks) noexcept {
  return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
         (quirks.hides_long_messages && status == IBV_WC_LOC_QP_OP_ERR);
}

}  // namespace

void VerbsEndpoint::receive(const VerbsMessageHeader& header, const std::byte* body,
                            uint32_t bytes) noexcept {
  BP_DCHECK(parts_.is_own_thread());
  BP_KEEPS_VALID(*this);
  // A message may arrive before the shard has seen that the connection is up.
  if (!channel_.is_live) look_at_link();
  // A message of an earlier connection: it was not counted, so the peer sends it again.
  if (!channel_.is_live) return;
  const char* fault = nullptr;
  if (bytes < sizeof header || header.bytes != bytes - sizeof header ||
      header.index != channel_.link.index || header.zero != 0) {
    fault = "a malformed message";
  } else if (header.mark != channel_.link.peer.packet_number) {
    return break_life("a message of another connection", false);
  } else {
    fault = take(header, body);
  }
  if (fault != nullptr) return break_life(fault, true);
  if (owes()) mark_dirty();
}

void VerbsEndpoint::receive_failed(ibv_wc_status status) noexcept {
  BP_DCHECK(parts_.is_own_thread());
  BP_DCHECK(status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR);
  if (!channel_.is_live) look_at_link();
  const bool is_fault = is_too_long(status, parts_.device->quirks());
  break_life(is_fault ? "a message that is too long" : ibv_wc_status_str(status), is_fault);
}

const char* VerbsEndpoint::take(const VerbsMessageHeader& header, const std::byte* body) noexcept {
  VerbsLink& link = channel_.link;
  BP_DCHECK(channel_.is_live && header.mark == link.peer.packet_number);
  if (const char* fault = outgoing_.take_credit(header); fault != nullptr) return fault;
  if (header.kind == VerbsMessageKind::kAcknowledgement) return nullptr;
  if (header.number != link.received) return "a message out of order";
  if (!outgoing_.has_peer_credit()) return "more than its window";
  ++link.received;
  const std::span<const std::byte> payload(body, header.bytes);
  switch (header.kind) {
    case VerbsMessageKind::kMessage: deliver(header.am, payload, {}); return nullptr;
    case VerbsMessageKind::kLoan: {
      Loan loan;
      if (const char* fault = borrower_.take(header, body, loan); fault != nullptr) return fault;
      deliver(header.am, payload.subspan(sizeof(VerbsLoanBody)), loan);
      return nullptr;
    }
    case VerbsMessageKind::kReturns: return lender_.take_returns(header, body);
    case VerbsMessageKind::kNothing: return header.bytes == 0 ? nullptr : "a malformed message";
    case VerbsMessageKind::kAcknowledgement: break;
  }
  return "a message of an unknown kind";
}

void VerbsEndpoint::deliver(AmId id, std::span<const std::byte> payload,
                            const Loan& loan) noexcept {
  parts_.counters->received.add(1);
  BP_USDT(verbs_receive, id, payload.size());
  if (parts_.dispatcher->deliver({*this, id, payload, loan})) return;
  parts_.counters->unhandled.add(1);
  if (loan.is_there()) give_back(loan);
}

void VerbsEndpoint::give_back(const Loan& loan) noexcept {
  BP_DCHECK(parts_.is_own_thread());
  BP_KEEPS_VALID(*this);
  if (borrower_.give_back(loan)) mark_dirty();
}

void VerbsEndpoint::end_requests(const ibv_wc& completion) noexcept {
  BP_DCHECK(parts_.is_own_thread());
  BP_KEEPS_VALID(*this);
  SendQueue& queue = channel_.queue;
  if (!queue.is_in_flight(completion.wr_id)) return;  // of an earlier connection
  const bool is_good = completion.status == IBV_WC_SUCCESS;
  if (!is_good) {
    has_refused_ = has_refused_ || is_refusal(completion.status);
    break_by_device(completion.status);
  }
  std::atomic<bool>& has_worked = channel_.link.has_worked;
  if (is_good && BP_UNLIKELY(!has_worked.load(std::memory_order_relaxed))) {
    has_worked.store(true, std::memory_order_release);
  }
  const Outcome failed = has_refused_ ? Outcome::kNotDone : Outcome::kUnknown;
  queue.end_up_to(
      completion.wr_id, [&](const PostedRequest& request, uint32_t index, bool is_last) {
        const bool is_cut_short = request.can_be_cut_short && is_refusal(completion.status);
        const Outcome outcome = is_cut_short ? Outcome::kUnknown : failed;
        end_request(request, index, is_last && !is_good ? outcome : Outcome::kDone);
      });
  // The queue may have had no space for these before.
  if (borrower_.has_returns() || windows_.has_given_up()) mark_dirty();
}

void VerbsEndpoint::end_request(const PostedRequest& request, uint32_t index,
                                Outcome outcome) noexcept {
  switch (request.kind) {
    case RequestKind::kMessage:
    case RequestKind::kBind:
    case RequestKind::kMarker: return;
    case RequestKind::kAcknowledgement:
      outgoing_.end_acknowledgement();
      return mark_dirty();  // the next one may be due
    case RequestKind::kInvalidate:
      if (windows_.end_invalidation(request.window, outcome) &&
          request.window < kVerbsLoanCountMax) {
        lender_.end_returning(request.window);
      }
      return;
    case RequestKind::kPart:
    case RequestKind::kAtomic:
    case RequestKind::kBounced:
    case RequestKind::kOperation: return operations_.end(request, index, outcome);
  }
}

}  // namespace bedplate
