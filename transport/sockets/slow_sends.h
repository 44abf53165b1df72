// Finds peers of a shard's sockets that do not take the data sent to them. It looks once a second,
// while anything is sent, and counts such peers, with the slowest one's address.
//
// A peer that takes an answer slowly but steadily does not count: the kernel tells the progress of
// each send that is unfinished at two looks in a row.
//
// It closes nothing: a client that takes none of its answers delays only itself, and the service
// decides when to close the connection. It does not wake a shard that sends nothing. Threads: the
// loop's.
#pragma once

#include <cstdint>

#include "platform/units.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/timer_queue.h"

namespace bedplate {

struct StreamSocket;
struct SocketCounters;

class SlowSends {
 public:
  static constexpr uint64_t kPauseNs = kNsPerSecond;

  SlowSends() noexcept = default;
  SlowSends(const SlowSends&) = delete;
  SlowSends& operator=(const SlowSends&) = delete;
  ~SlowSends();

  // Before the seal: it allocates the timer's slot. Lifetime: both arguments outlive this.
  void create(EventLoop& loop, SocketCounters& counters);

  void attached(StreamSocket& socket) noexcept;
  void detached(StreamSocket& socket) noexcept;
  // A send of `socket` has begun. Cost: a branch; once a second a timer.
  void began(StreamSocket& socket) noexcept;

 private:
  static constexpr uint64_t kNothingSeen = ~uint64_t{0};

  // Whether the peer has taken anything since the last look. Cost: one or two system calls, if no
  // send has ended since.
  static bool has_moved(StreamSocket& socket) noexcept;
  void look() noexcept;

  EventLoop* loop_ = nullptr;
  SocketCounters* counters_ = nullptr;
  StreamSocket* first_ = nullptr;       // a list of the attached sockets
  const StreamSocket* told_ = nullptr;  // the socket whose address the counters show
  uint64_t told_since_ns_ = 0;
  Timer timer_;
};

// Writes the peer of a connected socket and the local address into `text`, cut to `text_bytes`, as
// in "127.0.0.1:4711 at 127.0.0.1:10809" or "process 4711 at /run/sock". The peer is "(gone)" if
// the kernel does not know it any more. Returns `text`. Cost: three system calls at most.
const char* describe_connection(int fd, char* text, uint32_t text_bytes) noexcept;

}  // namespace bedplate
