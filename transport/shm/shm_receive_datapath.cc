// What arrives at a member: FIFO, boxes, lanes, and loans that come back.
#include <cstring>
#include <utility>

#include "platform/clock.h"
#include "platform/read_once.h"
#include "transport/shm/shm_provider.h"

namespace bedplate {
namespace {

// A loan's token: the lender's generation and number, the loan, its mark.
constexpr unsigned kTokenGenerationShift = 35;

}  // namespace

uint32_t ShmProvider::poll(uint32_t budget) noexcept {
  if (BP_UNLIKELY(members_->epoch() != seen_epoch_ || members_->is_owner_gone())) {
    follow_members();
  }
  if (BP_UNLIKELY(is_dead_)) return std::exchange(has_told_, false) ? 1 : 0;
  if (BP_UNLIKELY(wrapper_->notices.load(std::memory_order_acquire) != seen_notices_)) {
    look_for_cut_offs();
  }
  if (released_count_ > 0) give_back_released();
  uint32_t count = 0;
  if (loans_.out_count() > 0 && polls_++ % kPollsPerCollection == 0) count += collect_loans();
  if (BP_UNLIKELY(operation_count_.load(std::memory_order_relaxed) > 0)) {
    count += poll_operations();
  }
  if (BP_UNLIKELY(returning_count_.load(std::memory_order_relaxed) > 0)) return_boxes();
  if (inbound_box_count_ > 0) count += poll_boxes(budget);
  if (kind_ == GroupKind::kLazy) count += poll_fifo(budget);
  if (kind_ == GroupKind::kMesh) count += poll_lanes(budget);
  if (BP_UNLIKELY(epoch_to_acknowledge_ != 0)) acknowledge_if_drained();
  if (count > 0) counters_->received.set(received_);
  if (BP_UNLIKELY(lacks_memory_)) {
    lacks_memory_ = false;
    ++count;  // what waits is work to do: nobody wakes this shard when there is memory
  }
  // What the program was told it may have waited for: it is not put to sleep over it.
  if (BP_UNLIKELY(std::exchange(has_told_, false)) && count == 0) count = 1;
  return count;
}

uint32_t ShmProvider::poll_fifo(uint32_t budget) noexcept {
  uint32_t count = 0;
  bool is_awaited = false;
  for (; count < budget; ++count, ++tail_) {
    SlotHeader header;
    const MessageSlot& slot = fifo_.peek(tail_, &header);
    if (header.kind == SlotKind::kNone) break;
    if (BP_UNLIKELY(header.kind == SlotKind::kClaimed)) {
      const ClaimEnd end = end_claim(header, &is_awaited);
      if (end == ClaimEnd::kWait) break;
      if (end == ClaimEnd::kPassed) continue;
      fifo_.peek(tail_, &header);
    }
    ShmEndpoint* from = sender_of(header.sender);
    if (from == nullptr && lacks_memory_) break;  // it stays there until there is some
    if (from == nullptr) continue;
    handle(*from, header, slot.payload, nullptr);
    if (++from->heard_ == segment_.shape().send_threshold) grant_box(*from);
  }
  if (count > 0) fifo_.set_tail(tail_);
  return count + is_awaited;
}

// Of the slot at the tail: waits for its writer, or passes over it. `is_awaited`: this shard must
// not fall asleep, nobody would wake it when the time is over.
ShmProvider::ClaimEnd ShmProvider::end_claim(const SlotHeader& claim, bool* is_awaited) noexcept {
  if (!is_claim(claim, ClaimState::kHeld)) return ClaimEnd::kPassed;  // was ended in an earlier lap
  // Nobody publishes what is claimed for nobody.
  const bool may_write = is_peer(claim.sender) &&
                         members_->state(claim.sender) != MemberState::kQuiet &&
                         !segment_.writes_no_more(claim.sender);
  if (may_write && !has_died(claim.sender) && !is_overdue(is_awaited)) return ClaimEnd::kWait;
  const ClaimState state = may_write ? ClaimState::kRetired : ClaimState::kSkipped;
  if (!fifo_.try_end_claim(tail_, claim, state)) return ClaimEnd::kPublished;
  counters_->torn.add(1);
  return ClaimEnd::kPassed;
}

// Once for all slots that are claimed when the first of them is waited for: several members that
// are stopped hold up the FIFO no longer than one. When the pool's owner is dead nobody says any
// more who else has died: then this decides alone.
bool ShmProvider::is_overdue(bool* is_awaited) noexcept {
  if (tail_ >= overdue_until_) {
    if (++claim_polls_ % kPollsPerClaimCheck != 0) {
      *is_awaited = true;
      return false;
    }
    overdue_until_ = first_unclaimed();
    overdue_at_ns_ = monotonic_ns() + segment_.shape().publish_timeout_ms * kNsPerMs;
  }
  if (monotonic_ns() >= overdue_at_ns_) return true;
  // With nothing behind it nobody is held up, and its writer rings; unless that has died unnoticed.
  *is_awaited = is_pool_gone_ || epoch_to_acknowledge_ != 0 || first_unclaimed() > tail_ + 1;
  return false;
}

uint32_t ShmProvider::poll_boxes(uint32_t budget) noexcept {
  uint32_t count = 0;
  for (uint32_t i = 0; i < inbound_box_count_; ++i) {
    count += poll_box(inbound_boxes_[i], budget);
  }
  return count;
}

uint32_t ShmProvider::poll_box(InboundBox& box, uint32_t budget) noexcept {
  SlotHeader header;
  const MessageSlot* slot = box.consumer.peek(&header);
  if (slot == nullptr) return 0;
  ShmEndpoint* from = sender_of(box.sender);
  uint32_t count = 0;
  do {
    if (from != nullptr) handle(*from, header, slot->payload, &box.consumer);
    box.consumer.consume();
    slot = box.consumer.peek(&header);
  } while (++count < budget && slot != nullptr);
  // Its sender gives it back once it knows that all is read, and may send no more to learn it by.
  if (box.is_wanted_back) box.consumer.acknowledge();
  box.last_used = received_;
  return count;
}

uint32_t ShmProvider::poll_lanes(uint32_t budget) noexcept {
  uint32_t count = 0;
  // The dead were read to the end when they died (drain); their lanes may be made as new any time.
  for (uint32_t sender = 0; sender < segment_.shape().member_count; ++sender) {
    if (known_members_[sender].state() == MemberState::kAlive && sender != self_) {
      count += poll_lane(sender, budget);
    }
  }
  return count;
}

uint32_t ShmProvider::poll_lane(uint32_t sender, uint32_t budget) noexcept {
  const MeshLane lane = segment_.lane(self_, sender);
  const uint32_t head = lane.head();
  const ShmEndpoint* known = endpoints_->at(sender);
  const bool is_known = known != nullptr && known->generation_ == members_->generation(sender);
  if (head == (is_known ? known->inbound_lane_tail_ : 0)) return 0;
  ShmEndpoint* from = sender_of(sender);
  if (from == nullptr) return 0;
  uint32_t& tail = from->inbound_lane_tail_;
  if (head - tail > lane.capacity()) {
    cut_off(*from, "more words in its lane than there is room for");
    return 0;
  }
  uint32_t count = 0;
  for (; tail != head && count < budget; ++tail, ++count) {
    const LaneWord word = lane.at(tail);
    const std::span<std::byte> region = segment_.eager_region(sender);
    const uint64_t bytes = word.kind == SlotKind::kEager ? word.bytes : kInlineBytesMax;
    if (bytes > region.size() || word.offset > region.size() - bytes) {
      cut_off(*from, "a place outside its eager region");
      break;
    }
    const std::byte* body = region.data() + word.offset;
    if (word.kind == SlotKind::kEager && !from->is_ignored_) {
      deliver(*from, word.am, body, word.bytes, {});
    } else {
      handle(*from, {word.kind, word.am, word.bytes, sender}, body, nullptr);
    }
  }
  lane.set_tail(tail);
  return count;
}

void ShmProvider::handle(ShmEndpoint& from, const SlotHeader& header, const std::byte* body,
                         const FastBoxConsumer* box) noexcept {
  if (BP_UNLIKELY(from.is_ignored_)) return ignore(from, header.kind, body);
  switch (header.kind) {
    case SlotKind::kInline:
      if (header.bytes > kInlineBytesMax) return cut_off(from, "a message longer than its slot");
      return deliver(from, header.am, body, header.bytes, {});
    case SlotKind::kArea: {
      const auto place = read_once<PayloadPlace>(body);
      const std::byte* payload = box != nullptr ? box->area_payload(place, header.bytes) : nullptr;
      if (payload == nullptr) return cut_off(from, "a place outside its box");
      return deliver(from, header.am, payload, header.bytes, {});
    }
    case SlotKind::kEager: {
      const auto place = read_once<PayloadPlace>(body);
      const std::span<std::byte> region = segment_.eager_region(from.peer_);
      if (kind_ == GroupKind::kExchange || header.bytes > region.size() ||
          place.offset > region.size() - header.bytes) {
        return cut_off(from, "a place outside its eager region");
      }
      return deliver(from, header.am, region.data() + place.offset, header.bytes, {});
    }
    case SlotKind::kLoan: return handle_loan(from, header, body);
    case SlotKind::kControl: return handle_control(from, header, body, box != nullptr);
    default: return cut_off(from, "a message of no kind");
  }
}

void ShmProvider::handle_loan(ShmEndpoint& from, const SlotHeader& header,
                              const std::byte* body) noexcept {
  const auto descriptor = read_once<LoanDescriptor>(body);
  const auto* memory = reinterpret_cast<const std::byte*>(descriptor.address);
  const Segment* segment = shared_segment(memory, descriptor.bytes);
  // Only what it could read itself: what else is mapped here may be secret from it, and whoever is
  // given a loan may well send its bytes back.
  if (descriptor.loan >= segment_.shape().loan_count ||
      descriptor.header_bytes > kLoanHeaderBytesMax || segment == nullptr ||
      !members_->may_read(from.peer_, segment->number)) {
    refuse_loan(from, descriptor);
    return cut_off(from, "a loan of memory that it may not lend");
  }
  Loan loan;
  loan.memory = {memory, descriptor.bytes};
  loan.provider = this;
  loan.token = from.generation_ << kTokenGenerationShift | uint64_t{from.peer_} << 24 |
               uint64_t{descriptor.loan} << 8 | (descriptor.mark & 0xff);
  {
    const SpinGuard guard(lock_, is_threaded_);
    if (from.held_loans_++ == 0) set_held(from.peer_, true);
  }
  deliver(from, header.am, descriptor.header, descriptor.header_bytes, loan);
}

// What it lends comes back to it; nothing else of it counts.
void ShmProvider::ignore(ShmEndpoint& from, SlotKind kind, const std::byte* body) noexcept {
  if (kind == SlotKind::kLoan) refuse_loan(from, read_once<LoanDescriptor>(body));
}

// Gives back what was not delivered. Nobody but `from` looks at its returned loans.
void ShmProvider::refuse_loan(const ShmEndpoint& from, const LoanDescriptor& descriptor) noexcept {
  if (descriptor.loan >= segment_.shape().loan_count) return;
  segment_.returned_loans(from.peer_)[descriptor.loan].store(static_cast<uint8_t>(descriptor.mark),
                                                             std::memory_order_release);
}

void ShmProvider::release(const Loan& loan) noexcept {
  BP_ASSERT(loan.provider == this);
  const Return returned = {loan.token >> kTokenGenerationShift,
                           static_cast<uint32_t>(loan.token >> 24) & kMemberCountMax,
                           static_cast<uint16_t>(loan.token >> 8),
                           static_cast<uint8_t>(loan.token)};
  if (is_threaded_) {  // at once: the shard may be asleep
    const SpinGuard guard(lock_, true);
    return give_back(returned);
  }
  if (released_count_ == kReleasedCountMax) give_back_released();
  released_[released_count_++] = returned;
}

void ShmProvider::give_back_released() noexcept {
  for (uint32_t i = 0; i < released_count_; ++i) give_back(released_[i]);
  released_count_ = 0;
}

void ShmProvider::give_back(const Return& loan) noexcept {
  if (is_dead_) return;
  ShmEndpoint& from = *endpoints_->at(loan.lender);
  // The lender is gone, and its place was given out although this member held a loan of it:
  // somebody has written over what said so.
  if (from.generation_ << kTokenGenerationShift != loan.generation << kTokenGenerationShift) {
    return;
  }
  // Release: what was read of the loan was read before.
  segment_.returned_loans(loan.lender)[loan.loan].store(loan.mark, std::memory_order_release);
  BP_ASSERT(from.held_loans_ > 0);
  if (--from.held_loans_ == 0) set_held(loan.lender, false);
  from.bell_.ring();
}

// Tells the owner whose part must not be given to another yet.
void ShmProvider::set_held(uint32_t lender, bool is_held) noexcept {
  std::atomic<uint64_t>& word = segment_.held_loans(self_)[lender / 64];
  const uint64_t bit = uint64_t{1} << (lender % 64);
  const uint64_t before = word.load(std::memory_order_relaxed);
  word.store(is_held ? before | bit : before & ~bit, std::memory_order_release);
}

uint32_t ShmProvider::collect_loans() noexcept {
  LoanTable::Record records[kLoanBatch];
  size_t count = 0;
  {
    const SpinGuard guard(lock_, is_threaded_);
    count = loans_.collect(records);
    for (size_t i = 0; i < count; ++i) loan_share_.give_back(records[i].member);
  }
  for (size_t i = 0; i < count; ++i) finish_loan(records[i], Outcome::kDone);
  return static_cast<uint32_t>(count);
}

void ShmProvider::handle_control(ShmEndpoint& from, const SlotHeader& header, const std::byte* body,
                                 bool came_by_box) noexcept {
  const auto what = static_cast<ShmControl>(header.am);
  if (what == ShmControl::kOperation) return handle_operation(from, body);
  const auto box = read_once<uint32_t>(body);
  if (kind_ != GroupKind::kLazy || box >= segment_.shape().box_count) {
    return cut_off(from, "a box that there is not");
  }
  switch (what) {
    case ShmControl::kBoxGranted: return accept_box(from, box);
    case ShmControl::kBoxWanted: return give_box_back(from, box);
    case ShmControl::kBoxClosed:
      // By the FIFO: a box is not closed while it is being read.
      return came_by_box ? cut_off(from, "the end of a box inside a box") : close_box(from, box);
    default: return cut_off(from, "a control message of no kind");
  }
}

void ShmProvider::deliver(ShmEndpoint& from, uint32_t am, const std::byte* payload, uint32_t bytes,
                          const Loan& loan) noexcept {
  if (BP_UNLIKELY(copied_out_ != nullptr)) {
    std::memcpy(copied_out_.get(), payload, bytes);
    payload = copied_out_.get();
  }
  ++received_;
  const Message message = {from, static_cast<AmId>(am), {payload, bytes}, loan};
  if (BP_UNLIKELY(!dispatcher_->deliver(message))) {
    counters_->unhandled.add(1);
    if (loan.is_there()) release(loan);
  }
}

}  // namespace bedplate
