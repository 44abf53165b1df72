// The blocks that are lent to one peer.
//
// The peer reads a block with the key of its export, or through a memory window of its own. Blocks
// that neither can open are copied into the bounce buffer of loans. A loan is returned by a
// message; if it has a window, its block is the caller's again once the window is closed.
//
// A part of VerbsEndpoint. Threads: the shard's.
//
// Invariants: 1. Each loan is lent or free. 2. The window of one that is lent is not free, and not
// just bound when it is returning. 3. While the connection lives, a window that is ending is of a
// loan that is returning, or of an exposure. (is_valid)
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

  // Whether there is a loan and room for its window, beside room for its message.
  bool has_room() const noexcept {
    return !loans_.is_full() && channel_.queue.room() > ChannelParts::kRequestsKept + 1;
  }
  // Lends `block`, and describes the loan to the peer in `body`. Requires: room; may_send.
  // Returns kPending, kAgain or kRefused.
  SendStatus lend(std::span<std::byte> block, Completion* returned, VerbsLoanBody& body) noexcept;

  // Takes a message of loans that the peer returns. Returns its fault, or nullptr.
  const char* take_returns(const VerbsMessageHeader& header, const std::byte* body) noexcept;
  // The window of a loan that is returning is closed.
  void end_returning(uint32_t loan) noexcept;
  // The life is over: the blocks are their owners' again. Nobody knows if the peer has read them.
  void end_all() noexcept;

  uint32_t out_count() const noexcept { return loans_.out_count(); }
  bool is_valid() const noexcept;

 private:
  struct Lent : LoanRecord {
    uint64_t bytes = 0;
    std::byte* bounced = nullptr;  // the copy that the peer reads, if it reads one
    uint32_t mark = 0;             // counts the uses of this place
    bool has_window = false;       // else a permanent key opens it
    bool is_returning = false;     // its window has to be invalidated first
  };

  SendStatus describe(uint32_t loan, RemoteMemory& remote) noexcept;
  SendStatus bounce(Lent& record) noexcept;
  void end(uint32_t loan, Outcome outcome) noexcept;

  VerbsParts& parts_;
  ChannelParts& channel_;
  MemoryWindows& windows_;
  // A loan's number, which the peer knows, and its window's key are reused as late as can be.
  LoanBook<Lent, LoanOrder::kRound> loans_;
};

}  // namespace bedplate
