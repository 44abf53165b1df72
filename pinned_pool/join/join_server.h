// The owner's side of join and leave: a socket, and one thread that hands out parts of the pool,
// notices deaths, and takes the parts back.
//
// This is the control thread: the only writer of the members tables once it runs; its life is the
// owner's life in them. It works in turns:
//
//   wait for events (JoinWatch); stop if told to
//   handle all events of processes with a part, at most three of each (JoinProcesses)
//   tell deaths (GroupDoorbells)
//   serve a few connections without a part, and accept new ones (JoinStrangers)
//   check the deadlines, wipe one piece of one heap
//   tell the rest of what has changed
//
// So connections, in whatever number, delay the news of a death by a turn at most.
//
// It does not decide what to do when a process could not join: it reports a JoinEvent
// (JoinReports), and its owner decides.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pinned_pool/join/group_doorbells.h"
#include "pinned_pool/join/join_acceptor.h"
#include "pinned_pool/join/join_connections.h"
#include "pinned_pool/join/join_processes.h"
#include "pinned_pool/join/join_reports.h"
#include "pinned_pool/join/join_roster.h"
#include "pinned_pool/join/join_socket.h"
#include "pinned_pool/join/join_strangers.h"
#include "pinned_pool/join/join_watch.h"
#include "platform/closing_thread.h"
#include "platform/log_limit.h"
#include "platform/thread_owner.h"
#include "platform/thread_stack.h"
#include "platform/units.h"

namespace bedplate {

struct JoinServerOptions {
  std::string socket_path;
  // The listener at that path, which create() takes over; nullptr: the server opens it.
  JoinListener* listener = nullptr;
  PinnedPool* pool = &process_pool();
  PoolId pool_id;
  std::vector<JoinGroup> groups;
  std::vector<ProcessGrant> grants;
  // Called on the control thread. May be empty.
  std::function<void(const JoinEvent&)> on_event = {};
  uint64_t request_timeout_ns = 2 * kNsPerSecond;  // from connecting to its request
  uint64_t ready_timeout_ns = 10 * kNsPerSecond;   // from getting its part to being ready
  uint64_t log_period_ns = LogLimit::kPeriodNs;
};

class JoinServer {
 public:
  // Opens the socket and plans for all processes that may join; serves none yet. Replaces a socket
  // that a dead owner left, but not one that is served.
  // Requires: the groups' tables and segments exist, in a pool that is not sealed yet.
  // Errors: a plan that makes no sense, a socket that cannot be made, too few open files.
  static Result<std::unique_ptr<JoinServer>> create(JoinServerOptions options);

  JoinServer(const JoinServer&) = delete;
  JoinServer& operator=(const JoinServer&) = delete;
  ~JoinServer();

  // Adds a member of the owner itself, alive at once. Requires: before start(). The first one of a
  // group is its member 0.
  uint32_t add_own_member(uint32_t group, const MemberName& name) noexcept;

  // Starts the control thread: when this returns, the tables say that the owner lives.
  // Errors: no thread; OwnerLife::hold. Called once; before the pool's seal, for its stack.
  Result<void> start() noexcept;

  // Lets processes join; connections since create() have waited. Requires: start().
  // Errors: the system's.
  Result<void> serve() noexcept;

  // The most files that it has open for `process_count` processes: a connection, a pidfd and a pipe
  // of each, and of each silent connection.
  static constexpr uint64_t descriptor_count_max(uint64_t process_count) noexcept {
    return JoinConnections::kWatchedCount * (process_count + JoinConnections::kSilentCountMax + 1);
  }
  // The limit of open files that this needs, with the other files of its process.
  static constexpr uint64_t open_files_min(uint64_t process_count) noexcept {
    constexpr uint64_t kOthers = 256;
    return descriptor_count_max(process_count) + kOthers;
  }

  // Ends the server: removes the socket; every joined process sees that the owner is gone.
  // Threads: not the control thread.
  void stop() noexcept;

  // Whether the invariants of the connections and the processes hold. Cost: a look at each
  // connection. Threads: the control thread, or any before start().
  bool is_valid() const noexcept;

 private:
  JoinServer(JoinServerOptions&& options, std::unique_ptr<JoinRoster> roster);
  void run() noexcept;
  void turn() noexcept;
  int milliseconds_to_wait() const noexcept;

  const JoinServerOptions options_;  // without the groups and the grants, which the roster has
  const std::unique_ptr<JoinRoster> roster_;
  StackedThread thread_;
  ClosingThread closing_;  // closes others' sockets: descriptors may lie in them
  bool is_running_ = false;
  ThreadOwner control_;  // its thread, while it runs
  // Whether its thread has tried to hold the owner's life in all tables; life_ has the result.
  std::atomic<bool> has_tried_life_{false};
  Result<void> life_;
  bool is_stopping_ = false;

  JoinWatch watch_;
  JoinAcceptor acceptor_;
  JoinConnections connections_;
  JoinReports reports_;
  GroupDoorbells doorbells_;
  JoinProcesses processes_;
  JoinStrangers strangers_;
};

}  // namespace bedplate
