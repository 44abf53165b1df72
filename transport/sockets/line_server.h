// LineServer: sessions of a StandingLine, one after another.
//
// A session that ends is followed by another one on the same line; one that breaks is opened again.
// A session that has ended may still wait (StreamSession::wait): then another one takes its place,
// once there is one that does not wait.
//
//     start(): open the line, or try again each second
//     a line, and a session that does not wait: greet, then serve
//     the line is ready, or the session has changed: pump()
//       send what there is; receive; send again; follow a session that is over
//     look(), while a request has begun or replies are being sent:
//       late: late();  slow: drop the output, and follow the session
//
// Nothing limits the time between requests. Invariants, checked by is_valid(): 1. A session is
// served only while the line is open. 2. Only a session that is served sends. 3. The watch is for
// an open line.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <sys/uio.h>

#include "platform/counter.h"
#include "platform/file.h"
#include "platform/units.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/watch.h"
#include "transport/sockets/session_patience.h"
#include "transport/sockets/standing_line.h"
#include "transport/sockets/stream_session_datapath.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

struct LineServerOptions {
  EventLoop* loop = nullptr;
  StreamSockets* sockets = nullptr;  // the loop's, with one watch for this
  StandingLine* line = nullptr;
  std::string_view greeting = {};  // each session begins with it
  uint64_t slow_ns_max = 0;        // PatienceLimits
  Counter* sent_bytes = nullptr;   // required, as is the next
  Counter* timed_out = nullptr;    // requests that were late, and output that was dropped
};

// Threads: before start(), the one that sets it up; then the loop's. Nothing is allocated after
// create(). Lifetime: as long as the loop runs.
class LineServer {
 public:
  LineServer() noexcept = default;
  LineServer(const LineServer&) = delete;
  LineServer& operator=(const LineServer&) = delete;

  // Before the seal: it allocates the timer's slot. Called once. Ownership: all that `options`
  // names, and the sessions, outlive this.
  void create(const LineServerOptions& options, std::span<StreamSession* const> sessions) noexcept;
  // Begins to serve. Requires: create() was called.
  void start() noexcept;
  // Closes the line. The last call, after the loop's run. Does nothing without create().
  void end() noexcept;

  bool is_valid() const noexcept;

 private:
  static constexpr uint64_t kAgainNs = kNsPerSecond;  // until it opens the line again
  static constexpr uint64_t kLookNs = 500 * kNsPerMs;

  void open() noexcept;
  void begin_session() noexcept;
  void drop_session() noexcept;
  void changed() noexcept;
  void ready(uint32_t events) noexcept;
  void pump(bool is_readable) noexcept;
  bool send() noexcept;
  bool send_some(iovec* pieces, size_t count) noexcept;
  bool receive() noexcept;
  void lose(int error_number) noexcept;
  void watch() noexcept;
  void look() noexcept;
  void arm_timer() noexcept;
  bool is_sending() const noexcept { return !greeting_.empty() || !sending_.empty(); }
  SessionPatience::Connection state() const noexcept { return {is_sending(), false, taken_ns_}; }

  LineServerOptions options_;
  std::span<StreamSession* const> sessions_;
  Fd fd_;
  StreamSession* session_ = nullptr;  // the one that is served
  std::string_view greeting_;         // the rest of it
  std::span<iovec> sending_;          // the rest of the session's replies
  bool is_blocked_ = false;           // the line takes no more now
  size_t sent_bytes_ = 0;             // by the last send_some()
  uint64_t taken_ns_ = 0;
  SessionPatience patience_;
  Watch watch_ = {
      .ready = [](void* self,
                  uint32_t events) noexcept { static_cast<LineServer*>(self)->ready(events); },
      .context = this};
  Timer timer_ = {.expired = [](void* self) noexcept { static_cast<LineServer*>(self)->look(); },
                  .context = this};
};

}  // namespace bedplate
