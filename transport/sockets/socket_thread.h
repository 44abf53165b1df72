// An event loop with stream sockets on a thread of its own, beside the shards: for services that
// answer while a shard hangs, before the shards run and after they have stopped.
//
//     thread.create(options)   the thread makes its sockets, and waits: before the seal
//     thread.begin()           it calls `begin`, then runs its loop
//     thread.stop()            the loop ends; it calls `end`, and closes its sockets
//
// Nothing of it spins: the loop sleeps when there is nothing to do. It uses epoll, on which every
// machine can rely.
//
// Invariants: 1. States follow this order: starting, then failed; or starting, ready, running or
// abandoned. (set_state) 2. The sockets exist from ready on, until the thread ends. It makes and
// closes them while the loop does not run. (thread_main)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "alloc/heap_owner.h"
#include "platform/result.h"
#include "platform/thread_stack.h"
#include "transport/loop/event_loop.h"
#include "transport/sockets/socket_counters.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

struct SocketThreadOptions {
  const char* name = "";  // of the thread: 15 bytes at most; static
  uint32_t socket_count_max = 1;
  uint32_t watch_count_max = 0;
  uint32_t source_count_max = 0;  // those of add_source
  // Called on the thread, before and after the loop's run: to listen, and to close what is open.
  void (*begin)(void* context) noexcept = nullptr;
  void (*end)(void* context) noexcept = nullptr;
  void* context = nullptr;  // outlives this object
};

// Threads: the main thread, but for what the loop and the sockets say. Nothing is allocated after
// create(), in the name of the heap owner that called it.
class SocketThread {
 public:
  // Its descriptors beside those of sockets and watches: the loop's doorbell, and epoll's.
  static constexpr uint32_t kDescriptorCount = 2;

  SocketThread() noexcept = default;
  SocketThread(const SocketThread&) = delete;
  SocketThread& operator=(const SocketThread&) = delete;
  ~SocketThread() { stop(); }

  // Starts the thread, which makes its sockets and waits. Called once, before the seal. Errors: no
  // thread, or no descriptors.
  Result<void> create(const SocketThreadOptions& options);
  // The loop polls `source`, which outlives this, too. Between create() and begin().
  void add_source(PollSource& source, const char* name) noexcept;
  // Makes the thread run. Requires: create() has succeeded; called once.
  void begin() noexcept;
  // Ends the thread. Does nothing without one.
  void stop() noexcept;

  EventLoop& loop() noexcept { return loop_; }
  // Requires: create() has succeeded, and stop() was not called.
  StreamSockets& sockets() noexcept { return *sockets_; }

 private:
  enum class State : int { kStarting, kFailed, kReady, kRunning, kAbandoned };

  void thread_main() noexcept;
  Result<void> set_up();
  void set_state(State state) noexcept;

  SocketThreadOptions options_;
  EventLoop loop_;
  SocketCounters counters_;
  std::unique_ptr<StreamSockets> sockets_;
  HeapOwner asker_;
  Error failure_;
  std::atomic<State> state_{State::kStarting};
  bool is_started_ = false;
  StackedThread thread_;
};

}  // namespace bedplate
