// Connecting out from a shard: TCP over IPv4 or IPv6, or a Unix socket; over both backends.
//
// The socket is watched (transport/loop/watch.h) until the kernel has decided. Until then it is not
// attached; once connected its owner attaches it and receives and sends.
#pragma once

#include <cstdint>

#include <sys/socket.h>

#include "transport/loop/timer_queue.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

// One attempt to connect. Ownership: the caller's, at the same address until `completed` is called;
// then it may be freed or used again, also from within.
struct Connecting {
  // A stream socket of the address' family, not connected, in no backend. The caller's to close,
  // after `completed`; made non-blocking for the time, and blocking again before `completed`.
  int fd = -1;
  // 0: as long as the kernel tries (TCP: some two minutes).
  uint64_t time_ns_max = 0;
  // Called once on the shard, from the poll or the timers of its loop, never from within
  // start_connecting() or abort_connecting(). 0: connected; or -errno, among them -ECONNREFUSED;
  // -ETIMEDOUT: also when time_ns_max is over; -ECANCELED: aborted; -EAGAIN: a Unix socket's
  // backlog is full.
  void (*completed)(void* context, int result) noexcept = nullptr;
  void* context = nullptr;

  bool is_in_flight = false;  // the implementation's, as is what follows; to be read by anybody
  int result = 0;
  StreamSockets* sockets = nullptr;
  EventLoop* loop = nullptr;
  Watch watch;
  Timer limit;
};

// Starts it. Requires: it is not in flight; `loop` is that of `sockets`. Takes one of their watches
// (StreamSocketsOptions::watch_count_max); a timer comes with each. The address is not
// needed any more once this has returned.
// Returns 0, or an errno value of start_watching(): then nothing was started and nothing will be
// called. An immediate refusal by the kernel goes to `completed` like the rest.
// Threads: the shard's. Cost: allocates nothing; does not block.
int start_connecting(StreamSockets& sockets, EventLoop& loop, Connecting& connecting,
                     const sockaddr* address, socklen_t address_bytes) noexcept;

// Makes it complete soon with -ECANCELED, whatever the kernel has decided meanwhile; shuts its
// socket down. Nothing happens if it is not in flight.
void abort_connecting(Connecting& connecting) noexcept;

}  // namespace bedplate
