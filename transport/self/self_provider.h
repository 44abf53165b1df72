// The provider for a member's messages to itself: they arrive at its next poll, in order, as from
// any other member. So a service need not know which of its parts run in this process.
//
// A fast box in private memory carries copies of the messages; this object is both ends of it. A
// loan passes a pointer to the block. Puts, gets and atomics are carried out at once.
//
// Invariant, checked by is_valid() before and after each change: returned_count_ is the number of
// loans that were released and that the next poll ends. Each of them is still out.
#pragma once

#include <cstdint>
#include <memory>

#include "platform/assert.h"
#include "platform/thread_owner.h"
#include "transport/messages/fast_box_datapath.h"
#include "transport/messages/loan_book_datapath.h"
#include "transport/messages/provider.h"

namespace bedplate {

class SelfProvider final : public Provider, private Endpoint {
 public:
  static constexpr uint32_t kBoxBytes = kFastBoxBytesMax;
  static constexpr uint32_t kLoanCountMax = kFastBoxSlotCountMax;

  // `member`: this member's number. `own_name`: the name under which others know it; nullptr: none.
  // `dispatcher` and `own_name` outlive this. Allocates kBoxBytes, and the book of loans.
  SelfProvider(uint32_t member, const Dispatcher& dispatcher, const char* own_name = nullptr);
  SelfProvider(const SelfProvider&) = delete;
  SelfProvider& operator=(const SelfProvider&) = delete;
  ~SelfProvider() override = default;

  const char* name() const noexcept override { return "self"; }
  Result<Endpoint*> connect(const PeerAddress& peer) override;
  uint32_t poll(uint32_t budget) noexcept override;
  void release(const Loan& loan) noexcept override;
  // The only sender is the shard itself, which is awake.
  void announce_sleep() noexcept override {}
  void announce_awake() noexcept override {}
  void sleep(uint64_t) noexcept override {}
  bool can_sleep() const noexcept override { return false; }
  void follow(const ThreadOwner& loop) noexcept override { owner_.follow(loop); }

  bool is_valid() const noexcept;

 private:
  static constexpr EndpointLimits kLimits = {kSlotBytesMax, kInlineBytesMax, kLoanHeaderBytesMax};

  struct Lent : LoanRecord {
    uint64_t bytes = 0;
    bool is_returned = false;
  };

  SendStatus am_send(AmId id, std::span<const std::byte> payload) noexcept override;
  SendStatus am_send_loan(AmId id, std::span<const std::byte> header, std::span<std::byte> block,
                          Completion* returned) noexcept override;
  SendStatus start(const RemoteOperation& operation) noexcept override;
  SendStatus flush(Completion*) noexcept override { return SendStatus::kDone; }
  Result<RemoteMemory> expose(std::span<std::byte> memory) override;
  void withdraw(const RemoteMemory&) noexcept override {}
  bool has_room() noexcept override {
    BP_DREQUIRE_THREAD(owner_.is_caller(), "Endpoint::has_room");
    return producer_.next_slot() != nullptr;
  }

  SendStatus full() const noexcept;
  void deliver(const SlotHeader& header, const MessageSlot& slot) noexcept;
  uint32_t finish_loans() noexcept;

  ThreadOwner owner_;  // the loop's; and the polling thread holds it in a poll, in debug builds
  const uint32_t member_;
  const char* const own_name_;
  const Dispatcher& dispatcher_;
  struct alignas(kCacheLineBytes) Line {
    std::byte bytes[kCacheLineBytes];
  };
  std::unique_ptr<Line[]> memory_;
  FastBoxProducer producer_;
  FastBoxConsumer consumer_;
  LoanBook<Lent, LoanOrder::kLastFirst> loans_;
  uint32_t returned_count_ = 0;
};

}  // namespace bedplate
