// The end of a connection whose peer may still be sending.
//
// The kernel resets a connection that is closed with bytes unread, and the reset discards what is
// still on its way to the peer. So the connection lingers:
//
//     all is sent -> no more is sent (SHUT_WR) -> what comes is dropped, until the peer closes, or
//     for kLingerNs, or kLingerBytes -> closed
//
// The owner of the connections does these steps: it knows when all is sent, and its receives
// complete as ever. This class limits the time and the bytes, and has the memory for them.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sys/uio.h>

#include "platform/units.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/time_limit.h"
#include "transport/sockets/layered_socket_datapath.h"

namespace bedplate {

// A connection that may linger derives from it. Its time is limited while it does.
struct MayLinger : Limited {
  uint64_t linger_bytes_left = 0;
  iovec dropped = {};
};

// Threads: the loop's, but for create(). Nothing is allocated after create().
class StreamLinger {
 public:
  static constexpr uint64_t kLingerNs = kNsPerSecond;
  static constexpr uint64_t kLingerBytes = 4 * kMiB;

  StreamLinger() noexcept = default;
  StreamLinger(const StreamLinger&) = delete;
  StreamLinger& operator=(const StreamLinger&) = delete;

  // Before the seal, once: it allocates a timer's slot. `overdue`: as in TimeLimit::create, for a
  // connection that has lingered long enough.
  void create(EventLoop& loop, void (*overdue)(void*, Limited&) noexcept, void* context) {
    limit_.create(loop, kLingerNs, overdue, context);
  }
  // Requires: `one` is not limited.
  void begin(MayLinger& one) noexcept {
    one.linger_bytes_left = kLingerBytes;
    limit_.begin(one);
  }
  // Receives what is to be dropped. Requires: `socket`, that of `one`, is not receiving.
  void receive(MayLinger& one, LayeredSocket& socket) noexcept {
    one.dropped = {dropped_, sizeof dropped_};
    socket.receive({&one.dropped, 1}, 1);
  }
  // `bytes` have come. Returns whether more may come.
  static bool drop(MayLinger& one, uint64_t bytes) noexcept {
    one.linger_bytes_left -= std::min(one.linger_bytes_left, bytes);
    return one.linger_bytes_left > 0;
  }
  // Does nothing to a connection that is not limited.
  void end(MayLinger& one) noexcept { limit_.end(one); }

  bool is_valid() const noexcept { return limit_.is_valid(); }

 private:
  TimeLimit limit_;
  char dropped_[16 * kKiB];  // shared by all; nobody reads it
};

}  // namespace bedplate
