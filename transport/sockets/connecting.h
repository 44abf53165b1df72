// Outgoing connections of a shard: TCP over IPv4 or IPv6, or a Unix socket; over both backends.
//
// The socket is watched (transport/loop/watch.h) until the kernel has decided. Once it is
// connected, its owner attaches it to StreamSockets, and receives and sends.
#pragma once

#include <cstdint>

#include <sys/socket.h>

#include "transport/loop/timer_queue.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

// One attempt to connect. Ownership: the caller's, at the same address until `completed` is called;
// then it may be freed or used again, also from within `completed`.
struct Connecting {
  // A stream socket of the address' family, not connected, attached to no backend. The caller
  // closes it, after `completed`. It is non-blocking during the attempt, and blocking again before
  // `completed`.
  int fd = -1;
  // The time limit; 0: as long as the kernel tries (TCP: some two minutes).
  uint64_t time_ns_max = 0;
  // Called once on the shard, from the poll or the timers of its loop, never from within
  // start_connecting() or abort_connecting(). `result` is 0 if it is connected, else -errno, such
  // as -ECONNREFUSED; -ETIMEDOUT, also after time_ns_max; -ECANCELED if it was aborted; -EAGAIN if
  // a Unix socket's backlog is full.
  void (*completed)(void* context, int result) noexcept = nullptr;
  void* context = nullptr;

  bool is_in_flight = false;  // the implementation's, as are the fields below; anybody may read it
  int result = 0;
  StreamSockets* sockets = nullptr;
  EventLoop* loop = nullptr;
  Watch watch;
  Timer limit;
};

// Starts an attempt. Requires: it is not in flight; `loop` is that of `sockets`. Takes one of the
// watches of `sockets` (StreamSocketsOptions::watch_count_max), each of which comes with a timer.
// The address may be freed on return. Returns 0, or an errno value of start_watching(): then
// nothing was started and `completed` is not called. An immediate refusal by the kernel goes to
// `completed`, as a later one does. Threads: the shard's. Cost: allocates nothing; does not block.
int start_connecting(StreamSockets& sockets, EventLoop& loop, Connecting& connecting,
                     const sockaddr* address, socklen_t address_bytes) noexcept;

// Makes the attempt complete soon with -ECANCELED, whatever the kernel decides meanwhile, and shuts
// its socket down. Does nothing if it is not in flight. Threads: the shard's.
void abort_connecting(Connecting& connecting) noexcept;

}  // namespace bedplate
