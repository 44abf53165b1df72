// The blocks that are lent to one peer.
//
// The peer reads a block with the key of its export, or through a memory window of the loan. Blocks
// that neither can open are copied into the bounce buffer of loans. The peer returns a loan by a
// message. A loan with a window ends only after the window is closed; then its block is the
// caller's again.
//
// A part of VerbsEndpoint. Threads: the shard's.
//
// Invariants: 1. Each loan is lent or free. 2. If a lent loan has a window, the window is not free;
// once the loan is returning, its window is ending. 3. While the connection lives, the window of a
// loan is ending only if the loan is returning. (is_valid)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/messages/endpoint.h"
#include "transport/messages/loan_book_datapath.h"
#include "transport/verbs/channel/channel_parts.h"
#include "transport/verbs/channel/memory_windows_datapath.h"
#include "transport/verbs/channel/verbs_parts.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {

class VerbsLender {
 public:
  // Both outlive this. Allocates.
  VerbsLender(ChannelParts& channel, MemoryWindows& windows) noexcept
      : parts_(channel.shared), channel_(channel), windows_(windows) {
    loans_.create(kVerbsLoanCountMax);
  }

  // Whether a loan is free, and the queue has space for its window and its message.
  bool has_room() const noexcept {
    return !loans_.is_full() && channel_.queue.room() > ChannelParts::kRequestsKept + 1;
  }
  // Lends `block`, and writes the loan's description for the peer into `body`. Returns kPending;
  // kAgain if the bounce buffer is full now; kRefused if the block can never fit into it, or the
  // loan's window is missing. Only after kPending is the block lent. Requires: has_room(); the
  // channel's may_send.
  SendStatus lend(std::span<std::byte> block, Completion* returned, VerbsLoanBody& body) noexcept;

  // Takes a message of returned loans. Returns the fault of the message, or nullptr.
  const char* take_returns(const VerbsMessageHeader& header, const std::byte* body) noexcept;
  // Ends a returning loan. Requires: its window is closed.
  void end_returning(uint32_t loan) noexcept;
  // Ends all loans with kUnknown: the peer may or may not have read the blocks. Requires: the
  // connection is over, and the queue is idle.
  void end_all() noexcept;

  uint32_t out_count() const noexcept { return loans_.out_count(); }
  bool is_valid() const noexcept;

 private:
  struct Lent : LoanRecord {
    uint64_t bytes = 0;
    std::byte* bounced = nullptr;  // the copy that the peer reads, or nullptr
    uint32_t mark = 0;             // counts the uses of this index
    bool has_window = false;       // else a permanent key opens the block
    bool is_returning = false;     // its window has to be invalidated first
  };

  SendStatus describe(uint32_t loan, RemoteMemory& remote) noexcept;
  SendStatus bounce(Lent& record) noexcept;
  void end(uint32_t loan, Outcome outcome) noexcept;

  VerbsParts& parts_;
  ChannelParts& channel_;
  MemoryWindows& windows_;
  // The peer knows the loan's number and the key of its window: both are reused as late as
  // possible.
  LoanBook<Lent, LoanOrder::kRound> loans_;
};

}  // namespace bedplate
