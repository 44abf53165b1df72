// The socket at which a connector listens. While descriptors or memory are short it pauses, and
// callers wait in the kernel's queue.
//
// With the RDMA connection manager this socket is not used: ConnectionManager listens itself.
// Threads: the connector's.
//
// Invariants: 1. It pauses only while it is open. (is_valid)
#pragma once

#include <cstdint>

#include "platform/file.h"
#include "platform/log_limit.h"
#include "platform/result.h"
#include "transport/sockets/socket_address.h"
#include "transport/verbs/connect/link_events.h"

namespace bedplate {

class LinkListener {
 public:
  // `events` outlives it.
  explicit LinkListener(LinkEvents& events) noexcept : events_(events) {}

  // Listens; events are not watched yet. Errors (kSystem): it cannot listen on the address.
  Result<void> open(const SocketAddress& address) noexcept;
  void close() noexcept {
    fd_.close();
    resume_ns_ = 0;
  }
  bool is_open() const noexcept { return fd_.is_open(); }
  // Watches for callers. Returns false if it failed; errno says why. Requires: it is open.
  bool watch() noexcept;

  // Returns a caller's socket. Returns a closed Fd if there is no caller; or if descriptors or
  // memory are short, and it now pauses. Requires: it is open.
  Fd accept() noexcept;
  bool is_paused() const noexcept { return resume_ns_ != 0; }
  // Listens again if the pause is over.
  void resume_if_due(uint64_t now_ns) noexcept;

  bool is_valid() const noexcept { return !is_paused() || is_open(); }

 private:
  void pause() noexcept;

  LinkEvents& events_;
  Fd fd_;
  uint64_t resume_ns_ = 0;          // when to listen again; 0: it is listening
  bool was_shortage_told_ = false;  // since the last accepted call
  OncePerSecond shortages_;
};

}  // namespace bedplate
