// The receiving half: messages from one peer, and the ends of requests to it.
//
// The bodies of messages are copied out and checked before they are used, as their headers are
// (verbs_provider_datapath.cc). A peer that writes nonsense is cut off.
#include <cstring>

#include "platform/usdt.h"
#include "transport/verbs/channel/verbs_endpoint.h"

namespace bedplate {
namespace {

// Whether the peer's device refused before it did anything: then neither this request nor any
// behind it has happened. Other errors may come in the middle.
bool is_refusal(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_MW_BIND_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR: return true;
    default: return false;
  }
}

// Whether a message was longer than its receive. On some devices LOC_QP_OP_ERR says so; it would
// also report a fault of the receive itself, but ours are all alike.
bool is_too_long(ibv_wc_status status, const DeviceQuirks& quirks) noexcept {
  return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
         (quirks.hides_long_messages && status == IBV_WC_LOC_QP_OP_ERR);
}

// Loan::token.
uint64_t pack_token(uint16_t place, uint32_t life, uint32_t loan) noexcept {
  return uint64_t{place} << 48 | uint64_t{life} << 16 | loan;
}

}  // namespace

bool VerbsEndpoint::owes() const noexcept {
  return link_.received - told_ >= window_ / 2 || return_count_ > 0 || given_up_count_ > 0;
}

void VerbsEndpoint::post_batch() noexcept {
  BP_DCHECK(parts_.is_own_thread() && is_dirty_);
  finish_batch();
  is_dirty_ = false;  // only now: all that it has listed is posted
}

void VerbsEndpoint::finish_batch() noexcept {
  BP_KEEPS_VALID(*this);
  if (!may_send_) return;
  if (given_up_count_ > 0) invalidate_windows();
  if (return_count_ > 0) send_returns();
  if (link_.received - told_ >= window_ / 2) acknowledge();
  queue_.post();
  if (BP_UNLIKELY(queue_.has_failed())) break_life("the device takes no requests", false);
}

void VerbsEndpoint::receive(const VerbsMessageHeader& header, const std::byte* body,
                            uint32_t bytes) noexcept {
  BP_DCHECK(parts_.is_own_thread());
  BP_KEEPS_VALID(*this);
  // A message may come before the news that the connection is up.
  if (!is_live_) look_at_link();
  // A message of a former life: the peer sends it again, since it was not counted.
  if (!is_live_) return;
  const char* fault = nullptr;
  if (bytes < sizeof header || header.bytes != bytes - sizeof header ||
      header.place != link_.place || header.zero != 0) {
    fault = "a malformed message";
  } else if (header.mark != link_.peer.packet_number) {
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
  if (!is_live_) look_at_link();
  const bool is_fault = is_too_long(status, parts_.device->quirks());
  break_life(is_fault ? "a message that is too long" : ibv_wc_status_str(status), is_fault);
}

const char* VerbsEndpoint::take(const VerbsMessageHeader& header, const std::byte* body) noexcept {
  BP_DCHECK(is_live_ && header.mark == link_.peer.packet_number);
  if (const char* fault = take_consumed(header); fault != nullptr) return fault;
  if (header.kind == VerbsMessageKind::kAcknowledgement) return nullptr;
  if (header.number != link_.received) return "a message out of its order";
  if (link_.received - told_ >= window_) return "more than its window";
  ++link_.received;
  switch (header.kind) {
    case VerbsMessageKind::kMessage: deliver(header.am, {body, header.bytes}, {}); return nullptr;
    case VerbsMessageKind::kLoan: return take_loan(header, body);
    case VerbsMessageKind::kReturns: return take_returns(header, body);
    case VerbsMessageKind::kNothing: return header.bytes == 0 ? nullptr : "a malformed message";
    case VerbsMessageKind::kAcknowledgement: break;
  }
  return "a message of an unknown kind";
}

const char* VerbsEndpoint::take_consumed(const VerbsMessageHeader& header) noexcept {
  BP_DCHECK(is_live_ && next_ - consumed_ <= window_);
  const uint64_t gained = header.consumed - consumed_;
  if (gained > next_ - consumed_) return "an acknowledgement of what was not sent";
  consumed_ = header.consumed;
  // Acknowledgements of less would let it flood the shared queue.
  const bool is_idle = header.kind == VerbsMessageKind::kAcknowledgement &&
                       (gained < window_ / 2 || header.bytes != 0);
  return is_idle ? "an acknowledgement for nothing" : nullptr;
}

const char* VerbsEndpoint::take_loan(const VerbsMessageHeader& header,
                                     const std::byte* body) noexcept {
  VerbsLoanBody loan;
  if (header.bytes < sizeof loan || header.bytes > sizeof loan + kVerbsLoanHeaderBytesMax) {
    return "a malformed loan";
  }
  std::memcpy(&loan, body, sizeof loan);
  if (loan.loan >= kVerbsLoanCountMax || is_borrowed_[loan.loan] || is_due_back_[loan.loan] ||
      !may_reach(loan.memory, kRead) ||
      loan.memory.address + loan.memory.bytes < loan.memory.address) {
    return "a malformed loan";
  }
  BP_DCHECK(is_live_);
  is_borrowed_[loan.loan] = true;
  borrowed_marks_[loan.loan] = loan.mark;
  deliver(header.am, {body + sizeof loan, header.bytes - sizeof loan},
          {{}, loan.memory, parts_.provider, pack_token(link_.place, life_, loan.loan)});
  return nullptr;
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
  const auto place = static_cast<uint32_t>(loan.token & 0xffff);
  if (!is_live_ || loan.token != pack_token(link_.place, life_, place)) return;
  BP_ASSERT(is_borrowed_[place]);  // else it is given back twice
  is_borrowed_[place] = false;
  BP_DCHECK(!is_due_back_[place] && return_count_ < kVerbsLoanCountMax);
  is_due_back_[place] = true;
  returns_[return_count_++] = {place, borrowed_marks_[place]};
  mark_dirty();
}

const char* VerbsEndpoint::take_returns(const VerbsMessageHeader& header,
                                        const std::byte* body) noexcept {
  BP_DCHECK(is_live_ && header.kind == VerbsMessageKind::kReturns);
  if (header.bytes == 0 || header.bytes % sizeof(ReturnedLoan) != 0) return "malformed returns";
  for (uint32_t at = 0; at < header.bytes; at += sizeof(ReturnedLoan)) {
    ReturnedLoan returned;
    std::memcpy(&returned, body + at, sizeof returned);
    if (returned.loan >= kVerbsLoanCountMax) return "a loan that there is not";
    Lent& record = loans_[returned.loan];
    if (!loans_.is_out(returned.loan) || record.mark != returned.mark || record.is_returning) {
      return "a loan that was not its";
    }
    if (record.has_window) {
      record.is_returning = true;
      give_up_window(returned.loan);
    } else {
      end_loan(returned.loan, Outcome::kDone);
    }
  }
  return nullptr;
}

// The bytes of a get are copied to their place only if all have come.
void VerbsEndpoint::end_bounced(const Bounced& bounced, Outcome outcome) noexcept {
  BP_DCHECK(bounced.piece != nullptr && bounced.bytes > 0);
  if (bounced.into != nullptr && outcome == Outcome::kDone) {
    std::memcpy(bounced.into, bounced.piece, bounced.bytes);
  }
  parts_.transfer_bounce.give_back(bounced.piece, bounced.bytes);
}

void VerbsEndpoint::end_loan(uint32_t loan, Outcome outcome) noexcept {
  const Lent record = loans_.end(loan);
  if (record.bounced != nullptr) {
    // The key of the buffer opens all of it, to every peer that has borrowed so: no bytes of a loan
    // that is over may be left there.
    if (!record.has_window) std::memset(record.bounced, 0, record.bytes);
    parts_.loan_bounce.give_back(record.bounced, record.bytes);
  }
  finish_loan(record, outcome);
}

void VerbsEndpoint::end_requests(const ibv_wc& completion) noexcept {
  BP_DCHECK(parts_.is_own_thread());
  BP_KEEPS_VALID(*this);
  if (!queue_.is_under_way(completion.wr_id)) return;  // of a former life
  const bool is_good = completion.status == IBV_WC_SUCCESS;
  if (!is_good) {
    has_refused_ = has_refused_ || is_refusal(completion.status);
    break_by_device(completion.status);
  }
  if (is_good && BP_UNLIKELY(!link_.has_worked.load(std::memory_order_relaxed))) {
    link_.has_worked.store(true, std::memory_order_release);
  }
  const Outcome failed = has_refused_ ? Outcome::kNotDone : Outcome::kUnknown;
  queue_.end_up_to(completion.wr_id, [&](const Request& request, uint32_t place, bool is_last) {
    const bool is_cut_short = request.can_be_cut_short && is_refusal(completion.status);
    const Outcome outcome = is_cut_short ? Outcome::kUnknown : failed;
    end_request(request, place, is_last && !is_good ? outcome : Outcome::kDone);
  });
  if (return_count_ > 0 || given_up_count_ > 0) mark_dirty();  // there may have been no room
}

void VerbsEndpoint::end_request(const Request& request, uint32_t place, Outcome outcome) noexcept {
  if (outcome == Outcome::kDone && BP_UNLIKELY(SendQueue::lacks_answer(request, place))) {
    outcome = Outcome::kUnknown;
  }
  switch (request.kind) {
    case RequestKind::kMessage:
    case RequestKind::kMarker: return;
    case RequestKind::kAcknowledgement:
      BP_DCHECK(acknowledgements_out_ > 0);
      --acknowledgements_out_;
      return mark_dirty();  // the next one may be due
    case RequestKind::kBind: return;
    case RequestKind::kInvalidate:
      BP_DCHECK(invalidations_out_ > 0);
      --invalidations_out_;
      return end_invalidation(request.place, outcome);
    case RequestKind::kPart:
      BP_DCHECK(operations_out_ > 0 && request.done == nullptr);
      --operations_out_;
      has_part_ = has_part_ || outcome != Outcome::kNotDone;
      lacks_part_ = lacks_part_ || outcome != Outcome::kDone;
      return;
    case RequestKind::kAtomic:
      if (request.before != nullptr && outcome == Outcome::kDone) *request.before = *cell(place);
      [[fallthrough]];
    case RequestKind::kBounced:
    case RequestKind::kOperation:
      BP_DCHECK(operations_out_ > 0);
      --operations_out_;
      if (has_part_ && outcome == Outcome::kNotDone) outcome = Outcome::kUnknown;
      if (lacks_part_ && outcome == Outcome::kDone) outcome = Outcome::kUnknown;
      has_part_ = lacks_part_ = false;
      if (request.kind == RequestKind::kBounced) end_bounced(bounced_[place], outcome);
      if (request.done != nullptr) request.done->call(*request.done, outcome);
  }
}

}  // namespace bedplate
