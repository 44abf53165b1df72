#include "transport/self/self_provider.h"

#include <cstring>
#include <utility>

#include "platform/assert.h"
#include "platform/usdt.h"
#include "transport/messages/memory_access_datapath.h"

namespace bedplate {

SelfProvider::SelfProvider(uint32_t member, const Dispatcher& dispatcher, const char* own_name)
    : Endpoint("self", kLimits),
      member_(member),
      own_name_(own_name),
      dispatcher_(dispatcher),
      memory_(std::make_unique<Line[]>(kBoxBytes / kCacheLineBytes)) {
  loans_.create(kLoanCountMax);
  const FastBox box(memory_[0].bytes, kBoxBytes);
  producer_ = FastBoxProducer(box);
  consumer_ = FastBoxConsumer(box);
}

Result<Endpoint*> SelfProvider::connect(const PeerAddress& peer) {
  const bool is_by_name = peer.member == UINT32_MAX && peer.name != nullptr;
  const bool is_own_name =
      is_by_name && own_name_ != nullptr && std::strcmp(peer.name, own_name_) == 0;
  if (peer.member == member_ || is_own_name) return this;
  Error error;
  if (is_by_name) {
    error.set_doing("connecting to %s", peer.name);
    error.set_answer("this is %s", own_name_ != nullptr ? own_name_ : "a process without a name");
  } else {
    error.set_doing("connecting to member %u", peer.member);
    error.set_answer("this is member %u", member_);
  }
  return error.set_cure("add a provider that reaches it");
}

bool SelfProvider::is_valid() const noexcept {
  uint32_t returned = 0;
  for (uint32_t loan = 0; loan < loans_.count(); ++loan) {
    if (!loans_[loan].is_returned) continue;
    if (!loans_.is_out(loan)) return false;
    ++returned;
  }
  return returned == returned_count_ && loans_.is_valid();
}

// The box is full. Another thread than the shard's fills it without waking the shard, and would try
// for ever: here a release can look at the thread, too, since this is no fast path.
[[gnu::cold]] SendStatus SelfProvider::full() const noexcept {
  BP_REQUIRE_THREAD(owner_.is_caller(), "Endpoint::am_send");
  return SendStatus::kAgain;
}

SendStatus SelfProvider::am_send(AmId id, std::span<const std::byte> payload) noexcept {
  BP_DREQUIRE_THREAD(owner_.is_caller(), "Endpoint::am_send");
  if (payload.size() > kLimits.am_bytes_max) return SendStatus::kTooLong;
  MessageSlot* slot = producer_.next_slot();
  if (slot == nullptr) return full();
  const auto bytes = static_cast<uint32_t>(payload.size());
  SlotKind kind = SlotKind::kInline;
  if (bytes <= kInlineBytesMax) {
    copy_inline(slot->payload, payload.data(), bytes);
  } else {
    PayloadOffset offset;
    std::byte* area = producer_.next_area(bytes, &offset);
    if (area == nullptr) return full();
    std::memcpy(area, payload.data(), bytes);
    std::memcpy(slot->payload, &offset, sizeof offset);
    kind = SlotKind::kArea;
  }
  producer_.publish(*slot, {kind, id, bytes, 0});
  BP_USDT(self_send, id, bytes);
  return SendStatus::kDone;
}

SendStatus SelfProvider::am_send_loan(AmId id, std::span<const std::byte> header,
                                      std::span<std::byte> block, Completion* returned) noexcept {
  BP_DREQUIRE_THREAD(owner_.is_caller(), "Endpoint::am_send_loan");
  if (header.size() > kLoanHeaderBytesMax) return SendStatus::kTooLong;
  MessageSlot* slot = producer_.next_slot();
  if (slot == nullptr || loans_.is_full()) return full();
  BP_DCHECK_SLOW(is_valid());
  LoanDescriptor descriptor;
  descriptor.loan = loans_.try_lend(block.data(), returned);
  loans_[descriptor.loan].bytes = block.size();
  BP_USDT(self_lend, id, block.size());
  descriptor.header_bytes = static_cast<uint16_t>(header.size());
  copy_inline(descriptor.header, header.data(), header.size());
  std::memcpy(slot->payload, &descriptor, sizeof descriptor);
  producer_.publish(*slot, {SlotKind::kLoan, id, sizeof descriptor, 0});
  return SendStatus::kPending;
}

uint32_t SelfProvider::poll(uint32_t budget) noexcept {
  const ThreadOwner::DebugHold hold(owner_);
  BP_KEEPS_VALID(*this);
  uint32_t count = returned_count_ > 0 ? finish_loans() : 0;
  SlotHeader header;
  while (count < budget) {
    const MessageSlot* slot = consumer_.peek(&header);
    if (slot == nullptr) break;
    deliver(header, *slot);
    consumer_.consume();
    ++count;
  }
  return count;
}

void SelfProvider::deliver(const SlotHeader& header, const MessageSlot& slot) noexcept {
  // Both ends are in this object: the box contains only messages that it sent.
  BP_DCHECK(header.kind != SlotKind::kInline || header.bytes <= kInlineBytesMax);
  BP_DCHECK(header.bytes <= kLimits.am_bytes_max);
  std::span<const std::byte> payload = {slot.payload, header.bytes};
  Loan loan;
  LoanDescriptor descriptor;
  if (header.kind == SlotKind::kArea) {
    PayloadOffset offset;
    std::memcpy(&offset, slot.payload, sizeof offset);
    payload = {consumer_.area_payload(offset, header.bytes), header.bytes};
  } else if (header.kind == SlotKind::kLoan) {
    std::memcpy(&descriptor, slot.payload, sizeof descriptor);
    BP_ASSERT(descriptor.loan < kLoanCountMax);
    const Lent& record = loans_[descriptor.loan];
    BP_DCHECK(loans_.is_out(descriptor.loan) && !record.is_returned);
    loan = {{record.block, record.bytes}, {}, this, descriptor.loan};
    payload = {descriptor.header, descriptor.header_bytes};
  }
  BP_USDT(self_receive, header.am, payload.size());
  const Message message = {*this, static_cast<AmId>(header.am), payload, loan};
  if (!dispatcher_.deliver(message) && loan.is_there()) release(loan);
}

void SelfProvider::release(const Loan& loan) noexcept {
  BP_DREQUIRE_THREAD(owner_.is_caller(), "Messenger::release");
  BP_REQUIRE(loan.provider == this && loan.token < kLoanCountMax,
             "a loan is given back that another messenger got: Messenger::release");
  const auto number = static_cast<uint32_t>(loan.token);
  BP_REQUIRE(loans_.is_out(number) && !loans_[number].is_returned,
             "a loan is given back twice: Messenger::release");
  loans_[number].is_returned = true;
  ++returned_count_;
  BP_DCHECK_SLOW(is_valid());
}

uint32_t SelfProvider::finish_loans() noexcept {
  uint32_t count = 0;
  loans_.for_each_out([&](uint32_t loan) noexcept {
    if (!std::exchange(loans_[loan].is_returned, false)) return true;
    BP_ASSERT(returned_count_ > 0);
    --returned_count_;
    ++count;
    finish_loan(loans_.end(loan), Outcome::kDone);
    return true;
  });
  return count;
}

SendStatus SelfProvider::start(const RemoteOperation& operation) noexcept {
  BP_DREQUIRE_THREAD(owner_.is_caller(), "Endpoint::start");
  if (operation.bytes > operation.remote.bytes) return SendStatus::kTooLong;
  std::byte* at = pointer_to(operation.remote.address);
  if (is_atomic(operation.kind)) {
    if (operation.remote.address % sizeof(uint64_t) != 0) return SendStatus::kRefused;
    const uint64_t before = apply_atomic(operation.kind, at, operation.operand, operation.expected);
    if (operation.before != nullptr) *operation.before = before;
    return SendStatus::kDone;
  }
  const bool is_put = operation.kind == OperationKind::kPut;
  std::memmove(is_put ? at : operation.local, is_put ? operation.local : at, operation.bytes);
  return SendStatus::kDone;
}

Result<RemoteMemory> SelfProvider::expose(std::span<std::byte> memory) {
  return RemoteMemory{reinterpret_cast<uintptr_t>(memory.data()), memory.size(), 0, 0};
}

}  // namespace bedplate
