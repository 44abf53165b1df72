// Connections that are served beside the shards: one thread waits for all of them.
//
// As many connections as were planned, with all their memory; when they are all taken, a new one
// takes the place of one that says nothing, or is turned away. Slow connections are ended in time.
// A client that was refused, or turned away with words, is read from for a moment more, so that the
// answer reaches it. The session of a connection knows its protocol; the thread knows none.
//
// Invariants, by is_valid(): 1. So many connections are open as are counted. 2. A connection that
// lingers has said all that it will say. 3. No sign of life is later than now. By the heads of
// functions: 4. The thread alone serves them while it runs. 5. A connection is closed once, and its
// place is free then.
//
// Threads: create(), begin() and stop() are the main thread's; sessions are called by the thread
// that create() starts.
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
    const char* name = "";  // of the thread: 15 bytes at most
    ServedCounters* counters = nullptr;
    // Returns the words that a connection without a place is sent before it is closed; they may lie
    // in `room`. `context`, here and below, outlives this.
    std::string_view (*too_many)(void* context, std::span<char> room) noexcept = nullptr;
    // Returns the words that a connection is sent that may not ask, before it is closed; they may
    // lie in `room`. Empty: it may ask. nullptr: all may.
    std::string_view (*refusal)(void* context, int fd, std::span<char> room) noexcept = nullptr;
    void* context = nullptr;
    // Takes one of the sessions; those that connect have the others. Outlives this. nullptr: none.
    StandingLine* line = nullptr;
  };

  ConnectionThread() noexcept = default;
  ConnectionThread(const ConnectionThread&) = delete;
  ConnectionThread& operator=(const ConnectionThread&) = delete;
  ~ConnectionThread() { stop(); }

  // Heap memory that each connection takes, beside its session.
  static uint64_t bytes_each() noexcept { return sizeof(Connection) + sizeof(pollfd); }
  // So many clients that were turned away are heard out at once; with one more the oldest is
  // closed.
  static constexpr uint32_t kLeavingMax = 8;
  // Its descriptors beside those of connections: the one that wakes it, clients that were turned
  // away, and one that is being turned away.
  static constexpr uint32_t kDescriptorCount = 2 + kLeavingMax;

  // Takes all memory, and starts the thread, which waits. `sessions`, one for each connection,
  // and `listeners` outlive it. Errors: no thread, or no descriptor.
  Result<void> create(const Options& options, std::span<const Fd> listeners,
                      std::span<ConnectionSession* const> sessions);
  // From now on it answers.
  void begin() noexcept;
  // Ends the thread and closes the connections. Does nothing if there is no thread.
  void stop() noexcept;
  // Has sessions that wait look at what there is. Threads: any, from create() until stop().
  void wake() noexcept;

  bool is_valid() const noexcept;

 private:
  struct Connection {
    Fd fd;
    ConnectionSession* session = nullptr;
    uint64_t since_ns = 0;      // of the last sign of life; in a request: of its first byte
    bool is_lingering = false;  // nothing is sent any more; bytes that still come are thrown away

    bool is_busy() const noexcept {
      return session->is_in_request() || !session->output().empty() || session->is_waiting();
    }
  };

  // One that got no place, and has been told so.
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
  Connection* place_for_one(bool is_for_line) noexcept;
  void begin_connection(Connection* place, Fd fd) noexcept;
  void take_line() noexcept;
  void leave_line() noexcept;
  void serve(Connection* connection, short events) noexcept;
  bool receive(Connection* connection) noexcept;
  bool send(Connection* connection) noexcept;
  void end_slow(Connection* connection) noexcept;
  void close(Connection* connection) noexcept;
  void lose(Connection* connection, int error_number) noexcept;
  // The open connections without the line.
  uint32_t client_count() const noexcept { return open_count_ - (line_ != nullptr ? 1 : 0); }
  bool is_turned_away(Fd* fd) noexcept;
  void look(Connection* connection) noexcept;

  Options options_;
  std::span<const Fd> listeners_;
  std::vector<Connection> connections_;
  std::array<Leaving, kLeavingMax> leaving_;
  std::vector<pollfd> polled_;  // the wake descriptor, the listeners, those leaving, connections
  Fd wake_;
  std::atomic<bool> is_begun_{false};
  std::atomic<bool> must_end_{false};
  uint64_t now_ns_ = 0;
  uint64_t accept_again_ns_ = 0;  // the system had no descriptor: so long it is not asked again
  uint32_t open_count_ = 0;
  Connection* line_ = nullptr;  // that it has now
  Fd line_fd_;                  // while it has none
  uint64_t line_again_ns_ = 0;
  ThreadOwner owner_;  // held while the thread runs
  HeapOwner asker_;    // the owner of memory in create(): the thread allocates for it, too
  StackedThread thread_;
};

}  // namespace bedplate
