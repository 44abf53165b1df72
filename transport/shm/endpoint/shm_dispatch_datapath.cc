#include <cstring>
#include <utility>

#include "platform/read_once.h"
#include "platform/usdt.h"
#include "transport/shm/endpoint/shm_dispatch.h"
#include "transport/shm/queue/inbound_boxes.h"

namespace bedplate {

void ShmDispatch::create(const Options& options) {
  BP_ASSERT(parts_ == nullptr);
  parts_ = &options.parts;
  endpoints_ = &options.endpoints;
  view_ = &options.view;
  borrower_ = &options.borrower;
  dispatcher_ = &options.dispatcher;
  counters_ = &options.counters;
  boxes_ = options.boxes;
  if (!options.parts.outgoing.group.traits().has_trust) copied_out_.resize(kMessageBytesMax + 1);
  BP_DCHECK_SLOW(is_valid());
}

ShmEndpoint* ShmDispatch::hear_first(uint32_t member) noexcept {
  const MemberState state = parts_->outgoing.group.members().state(member);
  if (state == MemberState::kFree || state == MemberState::kJoining || view_->is_buried(member)) {
    return nullptr;
  }
  ShmEndpoint* made = endpoints_->try_make(member);
  if (made != nullptr) return made;
  lacks_memory_ = true;
  counters_->memory_waits.add(1);
  if (first_waiter_ == UINT32_MAX) {
    first_waiter_ = member;
    has_waiter_ = true;
  }
  BP_DCHECK_SLOW(is_valid());
  return nullptr;
}

void ShmDispatch::handle(ShmEndpoint& from, const SlotHeader& header, const std::byte* body,
                         const FastBoxConsumer* box) noexcept {
  if (BP_UNLIKELY(from.incoming().is_ignored)) return ignore(from, header.kind, body);
  switch (header.kind) {
    case SlotKind::kInline:
      if (header.bytes > kInlineBytesMax) return cut_off(from, "a message longer than its slot");
      return deliver(from, header.am, {body, header.bytes}, {});
    case SlotKind::kArea: {
      const auto offset = read_once<PayloadOffset>(body);
      const std::byte* payload = box != nullptr ? box->area_payload(offset, header.bytes) : nullptr;
      if (payload == nullptr) return cut_off(from, "a payload outside its box");
      return deliver(from, header.am, {payload, header.bytes}, {});
    }
    case SlotKind::kEager: return handle_eager(from, header, body);
    case SlotKind::kLoan: return handle_loan(from, header, body);
    case SlotKind::kControl: return handle_control(from, header, body, box != nullptr);
    default: return cut_off(from, "a message of an unknown kind");
  }
}

// A separate function, so that messages in slots and boxes save no registers for it.
[[gnu::noinline]] void ShmDispatch::handle_eager(ShmEndpoint& from, const SlotHeader& header,
                                                 const std::byte* body) noexcept {
  const auto offset = read_once<PayloadOffset>(body);
  const std::span<std::byte> region = parts_->outgoing.group.eager_region_of(from.peer());
  if (region.empty() || header.bytes > region.size() ||
      offset.bytes > region.size() - header.bytes) {
    return cut_off(from, "a payload outside its eager region");
  }
  deliver(from, header.am, {region.data() + offset.bytes, header.bytes}, {});
}

void ShmDispatch::handle_loan(ShmEndpoint& from, const SlotHeader& header,
                              const std::byte* body) noexcept {
  const auto descriptor = read_once<LoanDescriptor>(body);
  Loan loan;
  const char* nonsense = borrower_->borrow(from, descriptor, &loan);
  if (nonsense != nullptr) return cut_off(from, nonsense);
  BP_DCHECK(loan.is_there());
  deliver(from, header.am, {descriptor.header, descriptor.header_bytes}, loan);
}

void ShmDispatch::handle_control(ShmEndpoint& from, const SlotHeader& header, const std::byte* body,
                                 bool came_by_box) noexcept {
  const auto what = static_cast<ShmControl>(header.am);
  const char* nonsense = nullptr;
  if (what == ShmControl::kOperation) {
    nonsense = parts_->exposures.serve(from.peer_generation(), body);
    if (nonsense == nullptr) from.path().ring();
  } else {
    const auto box = read_once<uint32_t>(body);
    nonsense = boxes_ == nullptr || box >= parts_->outgoing.group.shape().box_count
                   ? "a box that does not exist"
                   : boxes_->hear(from, what, box, came_by_box);
  }
  if (nonsense != nullptr) cut_off(from, nonsense);
}

void ShmDispatch::ignore(const ShmEndpoint& from, SlotKind kind, const std::byte* body) noexcept {
  if (kind == SlotKind::kLoan) borrower_->refuse(from.peer(), read_once<LoanDescriptor>(body));
}

void ShmDispatch::deliver(ShmEndpoint& from, uint32_t am, std::span<const std::byte> payload,
                          const Loan& loan) noexcept {
  BP_DCHECK(!from.incoming().is_ignored && payload.size() <= kMessageBytesMax);
  if (BP_UNLIKELY(!copied_out_.empty())) {
    std::memcpy(copied_out_.data(), payload.data(), payload.size());
    payload = {copied_out_.data(), payload.size()};
  }
  ++received_count_;
  BP_USDT(shm_receive, am, payload.size());
  const Message message = {from, static_cast<AmId>(am), payload, loan};
  if (BP_UNLIKELY(!dispatcher_->deliver(message))) {
    counters_->unhandled.add(1);
    if (loan.is_there()) borrower_->release(loan);
  }
}

void ShmDispatch::cut_off(ShmEndpoint& peer, const char* what) noexcept {
  IncomingPeer& incoming = peer.incoming();
  if (incoming.is_cut_off()) return;
  BP_KEEPS_VALID(*this);
  incoming.nonsense = what;
  incoming.is_ignored = true;
  peer.path().close();
  const GroupView& group = parts_->outgoing.group;
  group.segment().set_cut_off(group.self(), peer.peer());
  peer.path().ring();
  counters_->cut_off.add(1);
  incoming.next_untold = untold_cut_offs_;
  untold_cut_offs_ = &peer;
}

const ShmEndpoint* ShmDispatch::take_cut_off() noexcept {
  BP_KEEPS_VALID(*this);
  ShmEndpoint* first = untold_cut_offs_;
  if (first != nullptr) untold_cut_offs_ = first->incoming().next_untold;
  return first;
}

uint32_t ShmDispatch::take_waiter() noexcept {
  BP_DCHECK_SLOW(is_valid());
  return std::exchange(has_waiter_, false) ? first_waiter_ : UINT32_MAX;
}

bool ShmDispatch::is_valid() const noexcept {
  const GroupView& group = parts_->outgoing.group;
  if (copied_out_.empty() != group.traits().has_trust) return false;
  if (has_waiter_ && !group.is_peer(first_waiter_)) return false;
  uint32_t count = 0;
  for (const ShmEndpoint* untold = untold_cut_offs_; untold != nullptr;
       untold = untold->incoming().next_untold) {
    const IncomingPeer& incoming = untold->incoming();
    if (!incoming.is_cut_off() || !incoming.is_ignored || untold->path().is_open()) return false;
    if (++count > group.member_count()) return false;  // the list has a cycle
  }
  return true;
}

}  // namespace bedplate
