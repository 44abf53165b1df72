// StreamSession: one peer's session in a protocol of requests and replies, without a socket: bytes
// go in, and the parts of replies come out.
//
// A protocol derives from it and implements work(): parse one request in the input buffer, and
// answer it. The base class does the rest. It handles requests that arrive in parts, or many at
// once. It sends the replies to all of them in one send, long ones without a copy. From a peer that
// does not read its replies it receives only until the input buffer is full. It receives large
// bodies straight into their destination. StreamServer (transport/sockets/stream_server.h) ties
// sessions to sockets; tests drive them without.
//
// An answer need not be there when work() returns:
//
//     the session waits   work() returns kWaits; it is called again after resume()
//     an answer waits     work() calls later(), and goes on with the next request; the completion
//                         of an operation fills the LaterAnswer and calls finish()
//
// If the peer goes meanwhile, the connection is kept until the last of these has come.
//
// A protocol may begin its layer, such as TLS, when the peer asks for it (STARTTLS):
//
//     work():  take(line); say("220 go ahead\r\n"); start_layer()
//              there is no further step, and nothing is received
//              all answers have come, and all replies are sent -> the layer begins
//              the next steps get what comes through the layer
//
// The protocol provides the memory: an input buffer, which holds the longest request without its
// body, an output buffer for say(), and a LaterAnswer for each answer that may wait. Nothing is
// allocated. Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <sys/uio.h>

#include "platform/assert.h"
#include "platform/histogram.h"
#include "platform/trace_ring.h"
#include "transport/loop/time_limit.h"
#include "transport/sockets/answer_watch.h"
#include "transport/sockets/layer_use.h"
#include "transport/sockets/later_answers_datapath.h"
#include "transport/sockets/stream_input_datapath.h"
#include "transport/sockets/stream_peer.h"
#include "transport/sockets/stream_replies_datapath.h"

namespace bedplate {

// The outcome of a step of work().
enum class StreamStep : uint8_t {
  kTaken,    // it took a request, or went on with one: the next step may follow at once
  kStarved,  // it needs more bytes: the next step comes when more have arrived
  kWaits,    // it waits for something else: the next step comes after resume()
};
constexpr StreamStep taken_if(bool is_taken) noexcept {
  return is_taken ? StreamStep::kTaken : StreamStep::kStarved;
}

class StreamSession : protected StreamInput {
 public:
  // Limits of one call of work(): bytes by say(), and loans by lend().
  static constexpr uint32_t kStepTextBytes = StreamReplies::kStepTextBytes;
  static constexpr uint32_t kStepLoans = StreamReplies::kStepLoans;
  static constexpr uint32_t kTimesMax = StreamReplies::kTimesMax;  // histograms of one session
  static_assert(kStepTextBytes <= LaterAnswer::kTextBytes && kStepLoans == 1);

  // `later`: one for each answer of later() that may wait. In the order of requests, the answers
  // behind a waiting one take one each, too. Ownership: all outlive the session. Requires: `output`
  // has at least 2 * kStepTextBytes.
  StreamSession(std::span<char> input, std::span<char> output, std::span<LaterAnswer> later = {},
                AnswerOrder order = AnswerOrder::kOfRequests) noexcept
      : StreamInput(input), replies_(output), later_(later, order) {}
  // The stations of the records of Owner::trace. All requests that one send answers pass them
  // together. `sent`: the socket needs no more of these bytes: it has sent them all, or the peer
  // has gone.
  static constexpr const char* kTraceStations = "received|answered|sent";

  // ---- For the owner of the socket (StreamServer) ----

  struct Owner {
    // Called when an answer or resume() has changed what the owner can do: send replies(), receive
    // more, or close. Not from within the calls below.
    void (*changed)(void* context) = nullptr;
    void* context = nullptr;
    // Sees the waiting answers of all sessions that share it, and a session that waits as one
    // answer more; nullptr: nobody watches them.
    AnswerWatch* watch = nullptr;
    const StreamPeer* peer = nullptr;  // stands for each peer in turn; nullptr: nobody asks for it
    // Gets, for each send, a record for each histogram of answered() requests in it. The record's
    // handle is their number, its bytes are those of the send.
    TraceWriter trace = {};
  };
  // Before the first peer. Ownership: all that `owner` names outlives the session.
  void set_owner(const Owner& owner) noexcept {
    owner_ = owner;
    later_.watch_by(owner.watch);
    replies_.trace_to(owner.trace);
  }
  // The peer has gone: left(). Answers that come later are dropped.
  void leave() noexcept;
  // Whether the session or one of its answers waits. Then reset() has to wait, too.
  bool is_waiting() const noexcept {
    return later_.is_session_waiting() || later_.waiting_count() > 0;
  }
  // Begins with a new peer. Gives back everything of the last one (left(), released()). Requires:
  // !is_waiting().
  void reset() noexcept;

  // The memory for the next bytes, and how many of them make received() worth a call. No pieces:
  // nothing can be received now. Valid until received() is called. A receive completes with
  // `min_bytes`.
  using Input = StreamInput::Input;
  Input input() noexcept;
  // Tells that `bytes`, over 0, have arrived in the pieces of input(), in order, and works on them.
  void received(uint64_t bytes, uint64_t now_ns) noexcept;

  // The bytes to send now; empty: none. When they are sent, or never will be, the caller calls
  // sent().
  std::span<iovec> replies() noexcept;
  // Tells that the socket took the bytes of replies() at `now_ns`: counts how long each request
  // took.
  void handed_over(uint64_t now_ns) noexcept;
  // Tells that the bytes of replies() were sent, or never will be: releases loans, and works on
  // requests that arrived meanwhile.
  void sent(uint64_t now_ns) noexcept;

  // Its work so far, for whoever limits its time (session_patience.h).
  struct Progress {
    uint32_t steps = 0;        // those that took something
    bool has_begun = false;    // a part of a request has come, and the rest has not
    uint64_t received_ns = 0;  // when the last bytes came; 0: none did
  };
  Progress progress() const noexcept { return {steps_, has_begun(), received_ns_}; }
  // The request that has begun was not complete in time. The protocol says so if it can, as in
  // work(), and either ends the session or drops what has arrived. Requires: progress().has_begun;
  // the session does not wait, and no replies are being sent.
  virtual void late() noexcept { end(); }

  // The peer's layer. Once the session wants it, is_over() is true until begin_layer(), and the
  // owner does not tell it of bytes that arrive (received()).
  SessionLayer& layer() noexcept { return layer_; }
  // The layer begins: nothing is in flight, and all replies are sent. `early_bytes` have arrived in
  // the pieces of the last input() since the session wanted it. Returns them; they are the layer's,
  // and stay until the next input(). More than kLayerEarlyBytesMax are no beginning of a layer: the
  // session ends as by end_foreign(). Requires: layer().is_wanted(), !is_waiting().
  std::span<const std::byte> begin_layer(uint64_t early_bytes) noexcept;

  // The protocol has ended the session: it takes nothing more, and closes once all is sent.
  bool is_over() const noexcept { return is_over_; }
  // The foreign protocol that the peer speaks, if that ended the session; the connection then
  // closes at once. nullptr: none.
  const char* foreign() const noexcept { return foreign_; }

  // Invariants, looked at before and after each of the above, and after each step: 1. Input,
  // replies and later answers are valid. 2. A session that wants its layer is over, and has no
  // input.
  bool is_valid() const noexcept;

 protected:
  ~StreamSession() = default;

  // ---- For the protocol to implement ----

  // One step: takes a request of arrived(), or continues one, and answers. Not called while replies
  // are being sent, nor while the session waits, nor while no LaterAnswer is spare (if it has any).
  // `now_ns`: the loop's time.
  virtual StreamStep work(uint64_t now_ns) noexcept = 0;
  // The bytes that lend() lent with `loan` were sent, or never will be.
  virtual void released(void* /*loan*/) noexcept {}
  // The peer has gone, perhaps in mid-request: fill() will not end. Operations that waiting answers
  // need may be cancelled, but each answer is still finished, once, and a waiting session resumed:
  // here or later. If the session itself has more to do, it calls wait().
  virtual void left() noexcept {}

  // ---- For the protocol to call, on the session's thread ----

  // Ends the wait of a step that returned kWaits, or of wait(). Not from within work().
  void resume(uint64_t now_ns) noexcept;
  // The session waits from now on, until resume(). Only from left().
  void wait() noexcept {
    BP_ASSERT(has_left_ && !later_.is_session_waiting());
    later_.begin_session_wait();
  }
  // Whether the peer has gone, so that nobody needs an answer.
  bool has_left() const noexcept { return has_left_; }
  // The present peer; nullptr: the owner of the socket tells nothing of it.
  const StreamPeer* peer() const noexcept { return owner_.peer; }

  // ---- For the protocol to call, from work() alone; and all of StreamInput ----

  // Makes the answer of this step one that comes later, behind what the step has said so far. The
  // protocol fills it and calls its finish(), once. Requires: once in a step, and then neither
  // say(), lend() nor answered(); the session has memory for such answers.
  LaterAnswer& later() noexcept {
    BP_REQUIRE(is_running_ && !has_left_,
               "a later answer is asked for outside of work(): StreamSession::later");
    return later_.defer(received_ns_);
  }

  // Appends a copy of `text` to the replies. Requires: at most kStepTextBytes in a step.
  void say(std::string_view text) noexcept {
    if (BP_UNLIKELY(later_.has_step_answer())) return later_.of_step().say(text);
    BP_DCHECK(!later_.would_be_overtaken());
    replies_.say(text);
  }
  // Appends `number` in decimal: up to 20 of the kStepTextBytes.
  void say_number(uint64_t number) noexcept;
  // Appends `text` without a copy: it stays unchanged until released(loan), which is called once.
  // Requires: at most kStepLoans in a step.
  void lend(std::string_view text, void* loan) noexcept {
    if (BP_UNLIKELY(later_.has_step_answer())) return later_.of_step().lend(text, loan);
    BP_DCHECK(!later_.would_be_overtaken());
    replies_.lend(text, loan);
  }
  // Tells that a request is answered. The time from its receipt until the socket takes its reply
  // goes to `time_ns`, one of at most kTimesMax. `kind`: the request's kind in the records of
  // Owner::trace, a number of the service's TraceDescription::kinds.
  void answered(Histogram& time_ns, uint8_t kind = 0) noexcept {
    if (BP_UNLIKELY(later_.has_step_answer())) {
      return later_.of_step().answered(time_ns, kind);
    }
    replies_.answered(time_ns, kind);
  }
  // Ends the session: no further step.
  void end() noexcept { is_over_ = true; }
  // The layer begins once all replies, those of this step included, are sent. There is no further
  // step before that. If bytes have arrived behind the request, the session ends as by
  // end_foreign(): the peer waits for our reply, so a third party may have injected them. Requires:
  // layer().may_start(); this step has taken its request, and neither skips nor fills.
  void start_layer() noexcept;
  // Ends it because the peer speaks another protocol, `what`, a static text. A third party may have
  // made the peer send this, so nothing of it is obeyed or answered.
  void end_foreign(const char* what) noexcept {
    foreign_ = what;
    end();
  }

 private:
  friend class LaterAnswer;

  void run(uint64_t now_ns) noexcept;

  StreamReplies replies_;
  LaterAnswers later_;
  Owner owner_;
  uint64_t received_ns_ = 0;
  uint32_t steps_ = 0;
  bool is_starved_ = true;   // all arrived bytes were worked on, but for the start of a request
  bool is_running_ = false;  // within run() or left(), whose caller does what `changed` would
  bool is_over_ = false;
  bool has_left_ = false;
  SessionLayer layer_;
  const char* foreign_ = nullptr;
};

}  // namespace bedplate
