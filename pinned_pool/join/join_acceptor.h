// The owner's listening socket for joining processes. If it cannot accept a connection, as when no
// descriptor or memory is free, its user pauses the acceptor for 100 ms; connections then wait in
// the socket.
#pragma once

#include <cstdint>
#include <string>

#include "pinned_pool/join/join_socket.h"
#include "pinned_pool/join/join_watch.h"
#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// Threads: the control thread's. open() and begin(): any, before this thread accepts. listener():
// any; only while no thread accepts may the caller close it.
class JoinAcceptor {
 public:
  enum class Outcome : uint8_t {
    kAccepted,
    kWentAway,  // this connection is gone already; there may be others
    kNone,      // no connection waits
    kFailed     // the socket stays readable, since no descriptor or memory is free, say: pause()
  };

  // `watch` outlives this object.
  explicit JoinAcceptor(JoinWatch& watch) noexcept : watch_(watch) {}

  // Takes over `listener`, and listens again as the present user; nullptr: opens a socket at
  // `path`. Errors: listen(2)'s or listen_for_joiners()'s.
  Result<void> open(JoinListener* listener, const std::string& path) noexcept;
  // From now on new connections raise events with JoinWatch::kListenerMark. Returns false with
  // errno set.
  bool begin() noexcept;

  // Accepts a connection into `socket`; otherwise sets errno.
  Outcome accept(Fd* socket) noexcept;

  // Stops watching the socket for 100 ms: it stays readable, and would end each wait at once.
  void pause() noexcept;
  bool is_paused() const noexcept { return resume_ns_ != 0; }
  // The time when the pause ends; UINT64_MAX: there is none.
  uint64_t due_ns() const noexcept { return is_paused() ? resume_ns_ : UINT64_MAX; }
  // Watches the socket again if the pause is over. `now_ns`: the time of monotonic_ns().
  void resume_if_due(uint64_t now_ns) noexcept;

  Fd& listener() noexcept { return listener_; }

 private:
  JoinWatch& watch_;
  Fd listener_;
  uint64_t resume_ns_ = 0;  // 0: not paused
};

}  // namespace bedplate
