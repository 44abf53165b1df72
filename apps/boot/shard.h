// A shard: one pinned thread with one event loop and one socket backend.
//
// The thread sets itself up when it starts, since an io_uring belongs to the thread that makes it;
// then it waits until the appliance is sealed, and runs.
//
// Invariants: 1. States follow this order: starting, then failed; or starting, ready, running or
// abandoned, closed. (set_state) 2. Sockets and files exist while the shard is ready or runs. Its
// thread makes and closes them while the loop does not run. (set_up, close)
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/boot/runtime_counters.h"
#include "apps/configuration/configuration.h"
#include "platform/thread_stack.h"
#include "platform/trace_ring.h"
#include "transport/files/file_thread.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/shard_plan.h"
#include "transport/registration.h"
#include "transport/sockets/stream_sockets.h"
#include "transport/uring/polled_files.h"

namespace bedplate {

struct ShardOptions {
  ShardSettings settings;
  EventLoopSettings event_loop;
  uint32_t socket_count_max = 1;  // over 0
  uint32_t source_count = 1;      // the sockets included
  uint32_t watch_count = 0;
  // Timers, sockets and watches of its services; nothing: a test's shard, whose sockets count none.
  std::optional<ShardPlan> plan;
  std::string sockets_name = "the sockets";  // their name in the log when a callback stalls
  std::vector<FileOptions> files;
  uint64_t file_patience_ns = 0;              // stop() waits this long for operations on files
  const ProcessPulse* pulse = nullptr;        // EventLoopOptions
  ShardCounters* counters = nullptr;          // required
  SourceCounters* socket_counters = nullptr;  // EventLoop::add_source; may be nullptr
  std::span<TraceRecord> trace_records;       // of its ring; empty: no ring
};

class Shard {
 public:
  Shard() noexcept = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;
  ~Shard();

  // Starts the thread, pins it, makes its backend, registers the pool with it (io_uring) and opens
  // the files. Returns when that is done. Call it once, before the seal. Errors: those that the
  // thread met.
  Result<void> create(const ShardOptions& options);

  // Makes the thread call `on_start`, then run its loop. Call it once, after the seal. Requires:
  // create() has succeeded.
  void run(std::function<void()> on_start);
  // Stops the loop and joins the thread. Waits for operations on files, up to file_patience_ns; if
  // some are left, does not join the thread. Does nothing if no thread was started, or on a second
  // call. Threads: not the shard's.
  void stop() noexcept;
  // True after stop() if the kernel still works on files for this shard (Files::close). The shard
  // must not be destroyed then.
  bool has_left_operations() const noexcept { return has_left_operations_; }

  // The thread's id. After create().
  pid_t thread_id() const noexcept { return thread_id_; }
  // True from the start of the thread, in create(), until stop().
  bool is_running() const noexcept { return is_started_; }

  EventLoop& loop() noexcept { return loop_; }
  StreamSockets& sockets() noexcept { return *sockets_; }
  Files& files() noexcept { return files_; }
  // The last requests that ended on this shard; nullptr: none are kept.
  TraceRing* trace_ring() noexcept { return trace_ring_.is_there() ? &trace_ring_ : nullptr; }

 private:
  enum class State : int { kStarting, kReady, kFailed, kRunning, kAbandoned, kClosed };

  void thread_main() noexcept;
  Result<void> set_up();
  Result<void> make_sockets();
  Result<void> open_files();
  void close() noexcept;
  void set_state(State state) noexcept;

  ShardOptions options_;
  EventLoop loop_;
  std::unique_ptr<StreamSockets> sockets_;
  KeyTable keys_;
  FileThread file_thread_{loop_};
  PolledFiles polled_files_;
  Files files_;
  TraceRing trace_ring_;
  Error failure_;
  std::function<void()> on_start_;
  std::atomic<State> state_{State::kStarting};
  StackedThread thread_;
  pid_t thread_id_ = 0;  // its thread writes it before it is ready
  bool is_started_ = false;
  bool has_left_operations_ = false;
};

}  // namespace bedplate
