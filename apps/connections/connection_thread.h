// Connections that are served beside the shards: one thread waits for all of them.
//
// The number of connections and all their memory are planned. When all slots are taken, a new
// connection replaces an idle one, or is turned away. Slow connections are closed after a time. If
// the thread refuses a client, or turns it away with a text, it reads from that client for a moment
// more, so that the text reaches the client. The session of a connection knows its protocol; the
// thread knows none.
//
//     wait(), one round of the thread:
//       take_line()      give the standing line a slot, if it has none
//       poll()           the wake descriptor, listeners, leaving clients, connections
//       hear_out()       read from clients that were turned away, close them in time
//       each connection: serve() its events, look() if it waits, end_slow()
//       accept_from()    new connections: refused, turned away, or given a slot
//
// Invariants, checked by is_valid(): 1. open_count_ is the number of open connections. 2. A
// lingering connection has sent all its output. 3. No connection's last activity is in the future.
// Functions assert: 4. Only the thread serves connections while it runs. 5. A connection is closed
// once, and its slot is free then.
//
// Threads: the main thread for create(), begin() and stop(). The thread that create() starts calls
// the sessions, the line and the functions of Options; stop() closes what is left after that thread
// has ended.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <poll.h>

#include "alloc/heap_owner.h"
#include "apps/connections/connection_session.h"
#include "apps/connections/standing_line.h"
#include "platform/file.h"
#include "platform/result.h"
#include "platform/thread_owner.h"
#include "platform/thread_stack.h"

namespace bedplate {

class ConnectionThread {
 public:
  struct Options {
    const char* name = "";               // of the thread: 15 bytes at most
    ServedCounters* counters = nullptr;  // required; outlives this object
    // Required. Returns the text for a connection that gets no slot; the text is sent before the
    // connection is closed, and may be stored in `room` (1024 bytes). Empty: nothing is sent.
    // `context`, here and below, outlives this object.
    std::string_view (*too_many)(void* context, std::span<char> room) noexcept = nullptr;
    // Returns the text for a connection that is refused; the text is sent before the connection is
    // closed, and may be stored in `room` (1024 bytes). Empty: the connection is accepted. nullptr:
    // all are accepted.
    std::string_view (*refusal)(void* context, int fd, std::span<char> room) noexcept = nullptr;
    void* context = nullptr;
    // A standing line takes one of the sessions; clients have the others. It outlives this object.
    // nullptr: no line.
    StandingLine* line = nullptr;
  };

  ConnectionThread() noexcept = default;
  ConnectionThread(const ConnectionThread&) = delete;
  ConnectionThread& operator=(const ConnectionThread&) = delete;
  ~ConnectionThread() { stop(); }

  // Heap memory of each connection, beside its session.
  static uint64_t bytes_each() noexcept { return sizeof(Connection) + sizeof(pollfd); }
  // The most clients that were refused or turned away and are still read from; one more closes the
  // oldest.
  static constexpr uint32_t kLeavingMax = 8;
  // Its descriptors beside those of connections: the wake descriptor, clients that were turned
  // away, and a client that is being turned away.
  static constexpr uint32_t kDescriptorCount = 2 + kLeavingMax;

  // Takes all memory, and starts the thread, which waits. `sessions` are one for each connection,
  // including the line; they and `listeners` outlive this object. The listeners become
  // non-blocking. Requires: called once, even if it fails. Errors: no thread, or no descriptor.
  Result<void> create(const Options& options, std::span<const Fd> listeners,
                      std::span<ConnectionSession* const> sessions);
  // From now on the thread accepts connections. Requires: create(); called once.
  void begin() noexcept;
  // Ends the thread and closes the connections. Does nothing without a thread.
  void stop() noexcept;
  // Wakes the thread, so that waiting sessions look(). Threads: any, from create() until stop().
  void wake() noexcept;

  bool is_valid() const noexcept;

 private:
  struct Connection {
    Fd fd;
    ConnectionSession* session = nullptr;
    uint64_t since_ns = 0;      // of the last activity; in a request: of its first byte
    bool is_lingering = false;  // nothing more is sent; received bytes are discarded

    bool is_busy() const noexcept {
      return session->is_in_request() || !session->output().empty() || session->is_waiting();
    }
  };

  // A client that got no slot, and was told so.
  struct Leaving {
    Fd fd;
    uint64_t since_ns = 0;
  };

  void run() noexcept;
  void wait() noexcept;
  bool has_leaving() const noexcept;
  void let_go(Fd fd, std::string_view words) noexcept;
  void hear_out(Leaving* leaving, bool is_ready) noexcept;
  void accept_from(int listener) noexcept;
  Connection* slot_for_one(bool is_for_line) noexcept;
  void begin_connection(Connection* slot, Fd fd) noexcept;
  void take_line() noexcept;
  void leave_line() noexcept;
  void serve(Connection* connection, short events) noexcept;
  bool receive(Connection* connection) noexcept;
  bool send(Connection* connection) noexcept;
  void end_slow(Connection* connection) noexcept;
  void close(Connection* connection) noexcept;
  void lose(Connection* connection, int error_number) noexcept;
  // The open connections, the line not counted.
  uint32_t client_count() const noexcept { return open_count_ - (line_ != nullptr ? 1 : 0); }
  bool is_refused(Fd* fd) noexcept;
  void look(Connection* connection) noexcept;

  Options options_;
  std::span<const Fd> listeners_;
  std::vector<Connection> connections_;
  std::array<Leaving, kLeavingMax> leaving_;
  std::vector<pollfd> polled_;  // the wake descriptor, the listeners, leaving clients, connections
  Fd wake_;
  std::atomic<bool> is_begun_{false};
  std::atomic<bool> must_end_{false};
  uint64_t now_ns_ = 0;
  uint64_t accept_again_ns_ = 0;  // accepts again then: the system had no descriptor or memory
  uint32_t open_count_ = 0;
  Connection* line_ = nullptr;  // the line's present connection
  Fd line_fd_;                  // the line's descriptor while it has no connection
  uint64_t line_again_ns_ = 0;
  ThreadOwner owner_;  // held while the thread runs
  HeapOwner asker_;    // the owner of memory in create() and on the thread
  StackedThread thread_;
};

}  // namespace bedplate
