// The connections of [http]: one thread of its own that waits for all of them, beside the shards.
//
// As many connections as were planned, with all their memory; when they are all taken, a new one
// takes the place of one that says nothing, or is turned away. What is slow is ended in time. A
// client that was refused is heard out for a moment, so that the answer reaches it.
// Threads: create(), begin() and stop() are the main thread's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <poll.h>

#include "apps/http/http_session.h"
#include "platform/file.h"
#include "platform/result.h"
#include "platform/thread_stack.h"

namespace bedplate {

class HttpServer {
 public:
  HttpServer() noexcept = default;
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer() { stop(); }

  // What each connection takes of the heap.
  static uint64_t bytes_each() noexcept { return sizeof(Connection) + sizeof(pollfd); }

  // Takes all memory, and starts the thread, which waits. `listeners` and `site` outlive it.
  // Errors: no thread, or no descriptor.
  Result<void> create(const HttpSite& site, std::span<const Fd> listeners,
                      uint32_t connection_count_max);
  // The counters may be read: from now on it answers.
  void begin() noexcept;
  // Ends the thread and closes the connections. Nothing happens where there is none.
  void stop() noexcept;

 private:
  struct Connection {
    Fd fd;
    HttpSession session;
    uint64_t since_ns = 0;      // of the last sign of life; in a request: of its first byte
    bool is_lingering = false;  // nothing is said any more: what still comes is thrown away
  };

  void run() noexcept;
  void wait() noexcept;
  void accept_from(int listener) noexcept;
  Connection* place_for_one() noexcept;
  void serve(Connection* connection, short events) noexcept;
  bool receive(Connection* connection) noexcept;
  bool send(Connection* connection) noexcept;
  void end_slow(Connection* connection) noexcept;
  void close(Connection* connection) noexcept;
  void wake() noexcept;

  const HttpSite* site_ = nullptr;
  std::span<const Fd> listeners_;
  std::vector<Connection> connections_;
  std::vector<pollfd> polled_;  // the wake descriptor, the listeners, the connections
  Fd wake_;
  std::atomic<bool> is_begun_{false};
  std::atomic<bool> must_end_{false};
  uint64_t now_ns_ = 0;
  uint64_t accept_again_ns_ = 0;  // the system had no descriptor: so long it is not asked again
  uint32_t open_count_ = 0;
  StackedThread thread_;
};

}  // namespace bedplate
