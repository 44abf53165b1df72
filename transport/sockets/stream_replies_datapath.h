// The replies of a StreamSession for one send: copied text and lent bytes, in order; and the
// requests that they answer, with their times.
//
//     say(), lend(), answered()   while a step answers
//     begin_send()                the socket gets the pieces
//     handed_over()               the socket has taken them
//     end_send()                  they were sent, or never will be; take_loan() before
//
// Threads: the session's. Nothing is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <sys/uio.h>

#include "platform/assert.h"
#include "platform/histogram.h"
#include "platform/trace_ring.h"

namespace bedplate {

class StreamReplies {
 public:
  static constexpr uint32_t kTimesMax = 4;
  // The limits of a step.
  static constexpr uint32_t kStepTextBytes = 2 * 1024;
  static constexpr uint32_t kStepLoans = 1;

  // Ownership: `output` outlives it. Requires: `output` has at least 2 * kStepTextBytes.
  explicit StreamReplies(std::span<char> output) noexcept : output_(output) {}

  // Each send writes its trace to `writer` (StreamSession::Owner).
  void trace_to(const TraceWriter& writer) noexcept { writer_ = writer; }

  // Whether a step's answer fits, and is not better left to the next send.
  bool has_room() const noexcept {
    // A loan may take two pieces: its own, and one for the text before or after it.
    return text_bytes_ + kStepTextBytes <= output_.size() &&
           piece_count_ + 2 * kStepLoans < kPieces && bytes_ < kBatchBytes;
  }
  bool is_sending() const noexcept { return is_sending_; }

  // Appends a copy of `text`. Requires: not is_sending(); within the limits of a step.
  void say(std::string_view text) noexcept;
  // Appends `text` without a copy: it stays unchanged until take_loan() has returned `loan`.
  void lend(std::string_view text, void* loan) noexcept;
  // Counts an answered request of `kind`. handed_over() adds its time to `time_ns`, one of at most
  // kTimesMax.
  void answered(Histogram& time_ns, uint8_t kind) noexcept {
    Times& times = times_of(time_ns, kind);
    ++times.count;
    ++times.untimed_count;
  }
  // The same; the request's time is over already.
  void answered_after(uint64_t taken_ns, Histogram& time_ns, uint8_t kind) noexcept {
    time_ns.add(taken_ns);
    ++times_of(time_ns, kind).count;
  }

  // The pieces to send now; empty: none, or a send is in progress.
  std::span<iovec> begin_send() noexcept;
  // `received_ns`: the receipt of the requests that answered() has counted.
  void handed_over(uint64_t received_ns, uint64_t now_ns) noexcept;
  // Returns false if no loan is left.
  bool take_loan(void** loan) noexcept;
  // Forgets the replies. Requires: take_loan() has returned false.
  void end_send(uint64_t now_ns) noexcept;
  // Forgets requests and times, too: the next peer's begin.
  void reset() noexcept;

  // Invariants: 1. Text lies within the output, pieces and loans within their arrays. 2. bytes_ is
  // the sum of the pieces, until the socket uses them up. 3. Each loan has a piece. 4. A send has
  // at least one piece.
  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kPieces = 34;
  static constexpr uint64_t kBatchBytes = 1 << 20;  // with so much to send no step begins

  // The answered requests of one kind.
  struct Times {
    Histogram* time_ns = nullptr;
    uint32_t count = 0;
    uint32_t untimed_count = 0;
    uint8_t kind = 0;
  };

  Times& times_of(Histogram& time_ns, uint8_t kind) noexcept;
  void write_trace(uint64_t now_ns) noexcept;

  const std::span<char> output_;
  uint32_t text_bytes_ = 0;
  uint32_t piece_count_ = 0;
  uint32_t loan_count_ = 0;
  bool is_sending_ = false;
  uint64_t bytes_ = 0;
  uint64_t handed_bytes_ = 0;  // 0: the socket has taken none
  Times times_[kTimesMax];
  TraceWriter writer_;
  RequestTrace trace_;  // of the requests that the socket has taken
  iovec pieces_[kPieces];
  void* loans_[kPieces];
};

}  // namespace bedplate
