// The owner's side of join and leave: a socket, and one thread that hands out parts of the pool,
// notices deaths, and takes the parts back.
//
// The thread is the control thread: once it runs, it is the only writer of the members tables. Its
// life is the owner's life in them. It works in turns:
//
//   wait for events (JoinWatch); stop if told to
//   handle all events of processes with a part, at most three of each (JoinProcesses)
//   ring for deaths (GroupDoorbells)
//   serve a few connections without a part, and accept new ones (JoinStrangers)
//   log counts of suppressed messages, check the deadlines
//   release quiet parts, for some 2 ms (PartReleases)
//   ring for other changes that are due
//
// So connections, in any number, delay the news of a death by at most one turn.
//
// The server does not decide what happens after a failed join: it reports a JoinEvent
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
  // The listener at that path, which create() takes over; nullptr: the server opens one.
  JoinListener* listener = nullptr;
  PinnedPool* pool = &process_pool();
  PoolId pool_id;
  std::vector<JoinGroup> groups;
  std::vector<ProcessGrant> grants;
  // Called on the control thread. May be empty.
  std::function<void(const JoinEvent&)> on_event = {};
  uint64_t request_timeout_ns = 2 * kNsPerSecond;  // from accept() to the request
  uint64_t ready_timeout_ns = 10 * kNsPerSecond;   // from the hand-over to kReady
  uint64_t log_period_ns = LogLimit::kPeriodNs;
};

class JoinServer {
 public:
  // Opens the socket and allocates for all processes that may join; does not serve yet. Replaces a
  // socket that a dead owner left, but not a socket that a process serves.
  // Requires: the groups' tables and segments exist, in a pool that is not sealed yet. Ownership:
  // pool, groups' and grants' pointers and spans outlive the server.
  // Errors: an invalid plan, a socket that cannot be made, too few open files.
  static Result<std::unique_ptr<JoinServer>> create(JoinServerOptions options);

  JoinServer(const JoinServer&) = delete;
  JoinServer& operator=(const JoinServer&) = delete;
  ~JoinServer();

  // Adds a member of the owner itself, alive at once. Requires: before start(). The first in a
  // group is its member 0.
  uint32_t add_own_member(uint32_t group, const MemberName& name) noexcept;

  // Starts the control thread: when this returns, the tables show the owner as alive. Called once,
  // before the pool's seal, because it takes two threads' stacks.
  // Errors: no descriptors; no thread, or no memory for its stack; OwnerLife::hold()'s.
  Result<void> start() noexcept;

  // Lets processes join; earlier connections have waited since create(). Requires: start().
  // Errors: the system's.
  Result<void> serve() noexcept;

  // The most files that the server has open for `process_count` processes: a connection, a pidfd
  // and a pipe for each process and for each silent connection.
  static constexpr uint64_t descriptor_count_max(uint64_t process_count) noexcept {
    return JoinConnections::kWatchedCount * (process_count + JoinConnections::kSilentCountMax + 1);
  }
  // The limit of open files that the whole process needs.
  static constexpr uint64_t open_files_min(uint64_t process_count) noexcept {
    constexpr uint64_t kOthers = 256;
    return descriptor_count_max(process_count) + kOthers;
  }

  // Ends the server: removes the socket, and waits for the control thread. Every joined process
  // then sees that the owner is gone. The destructor calls it. Threads: not the control thread.
  void stop() noexcept;

  // Whether the invariants of the connections and the processes hold. Cost: a look at each
  // connection and each instance. Threads: the control thread, or any before start().
  bool is_valid() const noexcept;

 private:
  JoinServer(JoinServerOptions&& options, std::unique_ptr<JoinRoster> roster);
  void run() noexcept;
  void turn() noexcept;
  int milliseconds_to_wait() const noexcept;

  const JoinServerOptions options_;  // without groups and grants, which the roster has
  const std::unique_ptr<JoinRoster> roster_;
  StackedThread thread_;
  ClosingThread closing_;  // closes peers' sockets: unread descriptors may lie in them
  bool is_running_ = false;
  ThreadOwner control_;  // the control thread, while it runs
  // Whether the control thread has tried to hold the owner's life in all tables; life_ has the
  // result.
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
