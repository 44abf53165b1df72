// StreamSession: one peer's session in a protocol of requests and replies, without a socket: bytes
// in, pieces of replies out.
//
// A protocol derives from it and implements work(): take one request apart where it was received,
// and say the answer. The rest is here: requests that come in pieces, or many at once; replies of
// all that came at once in one send, long ones from where they lie; a peer that does not read its
// replies, which is not read from either; large bodies, received straight into their place.
// StreamServer (transport/sockets/stream_server.h) ties sessions to sockets; tests drive them
// without.
//
// Memory is the protocol's: an input buffer, which has to hold the longest request but for bodies,
// and an output buffer for what say() copies. Nothing is allocated. Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <sys/uio.h>

#include "platform/assert.h"
#include "platform/histogram.h"
#include "platform/trace_ring.h"

namespace bedplate {

class StreamSession {
 public:
  // Limits of one call of work(): the bytes that it may say(), and the loans that it may lend().
  static constexpr uint32_t kStepTextBytes = 2 * 1024;
  static constexpr uint32_t kStepLoans = 1;
  static constexpr uint32_t kTimesMax = 4;

  // Ownership: both outlive the session. Requires: `output` has at least 2 * kStepTextBytes.
  StreamSession(std::span<char> input, std::span<char> output) noexcept
      : input_(input), output_(output) {}
  // The stations of what trace_to() tells: requests that one send answers pass them together.
  // `sent`: the socket takes no more of them, since it has all, or since the peer has gone.
  static constexpr const char* kTraceStations = "received|answered|sent";

  StreamSession(const StreamSession&) = delete;
  StreamSession& operator=(const StreamSession&) = delete;

  // ---- For the owner of the socket (StreamServer) ----

  // Each send writes to `writer` a record for each kind of answered() requests in it: its handle is
  // their number, its bytes those of the send. Before the first peer.
  void trace_to(const TraceWriter& writer) noexcept { writer_ = writer; }
  // A new peer. Gives back what the last one left (left(), released()).
  void reset() noexcept;

  // The place for the next bytes, and how many of them are worth a call; no piece: there is no use
  // for any now. Good until received() is told of some. A receive completes with `min_bytes`.
  struct Input {
    iovec* pieces;
    uint32_t piece_count;
    uint64_t min_bytes;
  };
  Input input() noexcept;
  // So many bytes have come to where input() said, in its order, over 0: works on them.
  void received(uint64_t bytes, uint64_t now_ns) noexcept;

  // The bytes to send now; empty: none. Once it is, or will never be, sent() is called.
  std::span<iovec> replies() noexcept;
  // They were handed to the socket at `now_ns`: counts how long each request has taken.
  void handed_over(uint64_t now_ns) noexcept;
  // The bytes that replies() gave were sent, or never will be: loans are released, and requests
  // that have come meanwhile are worked on.
  void sent(uint64_t now_ns) noexcept;

  // The protocol has ended it: nothing more is taken, and it closes once all is sent.
  bool is_over() const noexcept { return is_over_; }
  // The foreign protocol that the peer speaks, if that has ended the session; the connection is
  // then closed at once. nullptr: none.
  const char* foreign() const noexcept { return foreign_; }

  // Invariants, looked at before and after each of the above, and after each step:
  // 1. Bytes that arrived lie within the input, replies' text within the output, and pieces and
  //    loans within their places. 2. While fill() goes on, nothing has arrived behind its bytes.
  // 3. reply_bytes_ is the sum of the pieces, until the socket uses them up. 4. Each loan has a
  //    piece. 5. A send has at least one piece.
  bool is_valid() const noexcept;

 protected:
  ~StreamSession() = default;

  // ---- Implemented by the protocol ----

  // One step: takes a request of arrived(), or goes on with one, and answers. Returns false if more
  // must arrive first; then it is called again when there is more. Not called while replies are on
  // their way. `now_ns`: the loop's time.
  virtual bool work(uint64_t now_ns) noexcept = 0;
  // The bytes that lend() got with this loan were sent, or never will be.
  virtual void released(void* /*loan*/) noexcept {}
  // The peer has gone, perhaps in the middle: fill() will not end.
  virtual void left() noexcept {}

  // ---- Called by the protocol, from work() alone ----

  // The bytes that have come and were not taken. They move, so no pointer into it is good in the
  // next step.
  std::string_view arrived() const noexcept { return {input_.data() + begin_, end_ - begin_}; }
  // The first line of it, with its '\n'; empty: there is none yet.
  std::string_view arrived_line() const noexcept {
    return arrived().substr(0, arrived().find('\n') + 1);
  }
  // Nothing more can arrive until something is taken.
  bool is_input_full() const noexcept { return end_ - begin_ == input_.size(); }
  // Takes so much of the front. Requires: it has arrived.
  void take(uint64_t bytes) noexcept {
    BP_DCHECK(bytes <= end_ - begin_);
    begin_ += static_cast<uint32_t>(bytes);
  }
  // Drops so much, also of what has yet to come, before the next step.
  void skip(uint64_t bytes) noexcept {
    BP_DCHECK(fill_left_ == 0 && skip_bytes_ == 0);
    skip_bytes_ = bytes;
  }
  // The next bytes, so many, go to `memory`; the next step comes when all of them are there. Those
  // that have arrived are copied, the others are received there. Ownership: `memory` stays until
  // the next step, or left(). Requires: once in a step.
  void fill(char* memory, uint64_t bytes) noexcept;
  // No step makes sense before so much has arrived. Until then; only if work() returns false.
  void want(uint64_t arrived_bytes) noexcept {
    BP_DCHECK(arrived_bytes > end_ - begin_ && arrived_bytes <= input_.size());
    wanted_bytes_ = arrived_bytes;
  }

  // Appends a copy of `text` to the replies. Requires: kStepTextBytes in a step at most.
  void say(std::string_view text) noexcept;
  // Appends `number` in decimal: up to 20 of these bytes.
  void say_number(uint64_t number) noexcept;
  // Appends `text` without a copy: it stays as it is until released(loan), which is called once.
  // Requires: kStepLoans in a step at most.
  void lend(std::string_view text, void* loan) noexcept;
  // A request is answered: the time from its receipt until its reply is handed to the socket goes
  // to `time_ns`, one of kTimesMax at most. `kind`: the kind of these requests in trace_to()'s
  // records, a number of the service's TraceDescription::kinds.
  void answered(Histogram& time_ns, uint8_t kind = 0) noexcept;
  // No step comes any more.
  void end() noexcept { is_over_ = true; }
  // The same, since the peer speaks another protocol, `what`, a static text: somebody else may have
  // made it send that, and nothing of it is obeyed or answered.
  void end_foreign(const char* what) noexcept {
    foreign_ = what;
    end();
  }

 private:
  static constexpr uint32_t kPieces = 34;
  static constexpr uint64_t kBatchBytes = 1 << 20;  // more is not begun before that is sent

  // So many answered requests, and where their time goes.
  struct Times {
    Histogram* time_ns = nullptr;
    uint32_t count = 0;
    uint8_t kind = 0;
  };

  bool has_room() const noexcept;
  void run(uint64_t now_ns) noexcept;
  void tell_trace(uint64_t now_ns) noexcept;

  const std::span<char> input_;
  const std::span<char> output_;
  uint64_t received_ns_ = 0;
  Times times_[kTimesMax];
  TraceWriter writer_;
  RequestTrace trace_;         // of those that were handed over
  uint64_t handed_bytes_ = 0;  // 0: none was
  bool is_starved_ = true;  // whatever has come was worked on, but for the beginning of a request
  bool is_over_ = false;
  const char* foreign_ = nullptr;
  bool is_sending_ = false;
  char* fill_end_ = nullptr;
  uint64_t fill_left_ = 0;
  uint64_t skip_bytes_ = 0;
  uint64_t wanted_bytes_ = 0;
  uint32_t begin_ = 0;  // what the input buffer has
  uint32_t end_ = 0;
  uint32_t text_bytes_ = 0;
  uint32_t piece_count_ = 0;
  uint32_t loan_count_ = 0;
  uint64_t reply_bytes_ = 0;
  iovec input_pieces_[2];
  iovec pieces_[kPieces];
  void* loans_[kPieces];
};

}  // namespace bedplate
