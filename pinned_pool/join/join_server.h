// The owner's side of join and leave: a socket, and one thread that hands out parts of the pool,
// notices deaths, and takes the parts back.
//
// This is the control thread: the only writer of the members tables once it runs; its life is the
// owner's life in them. It watches three descriptors of a process: its connection (its packets), a
// pidfd (if it lives), and the read end of its quiet pipe (if a forked child, or an io_uring that
// outlasts the process, may still touch the pool).
//
//   asked -> handed over -> ready: alive -> leaves, hangs up or ends: dead
//         -> has ended and its pipe hung up: quiet -> forgotten, wiped: free
//
// It trusts nobody: a connection that sends nothing, or nonsense, costs a bounded time and nothing
// else. It works in turns. Each turn first stops if it has to, handles all events of processes with
// a part (at most three of each: a packet, its end, its quiet), and tells deaths. Then it serves at
// most kStrangersPerTurn connections without a part, checks the deadlines, and wipes one piece of
// one heap. So connections, in whatever number, delay the news of a death by a turn at most.
//
// Messages that others cause are logged within limits, in ten seconds: kLinesOfStrangers about
// unknown connections; for each `[[process]]` kLinesOfGrant, and kLinesOfProcess for each process
// that it may have at once. The rest is counted, and the count is logged.
//
// It does not decide what to do when a process could not join: it reports a JoinEvent, and its
// owner decides.
//
// Invariants, which is_valid() checks before and after each turn and each connection's change of
// phase: 1. A connection is in use, or unused: then it has nothing open and is in the list of
// unused ones. 2. silent_ has each connection in kConnected, once, oldest first. 3. joining_count_
// connections are in kHandedOver. 4. From kHandedOver on a connection has a part, with the state of
// its phase and with its process; no part lacks a connection. 5. quiet_count_ parts are to be
// released; their processes have ended and their pipes are shut. 6. A connection's socket is open
// as long as packets are read from it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sys/epoll.h>

#include "pinned_pool/join/join_roster.h"
#include "pinned_pool/join/join_socket.h"
#include "platform/closing_thread.h"
#include "platform/file.h"
#include "platform/free_list.h"
#include "platform/log_limit.h"
#include "platform/thread_owner.h"
#include "platform/thread_stack.h"
#include "platform/units.h"

namespace bedplate {

struct JoinEvent {
  enum class Kind : uint8_t {
    kJoined,   // alive
    kRefused,  // it got nothing
    kFailed,   // it was given its part and could not use it, or did not get ready in time
    kLeft,     // it said so; dead in the table
    kDied,     // it ended, hung up, or was cut off; dead in the table
    kQuiet,
    kFreed,  // its part can be given out again
  };
  Kind kind = Kind::kJoined;
  MemberName process;  // empty: it gave no name
  pid_t pid = 0;
  uint32_t group = 0;
  uint32_t member = 0;  // its first one; both are 0 for kRefused
  uint32_t member_count = 0;
  bool is_trusted = false;    // false for kRefused
  Error error = {};           // why, for kRefused, kFailed and kDied
  bool may_be_logged = true;  // false: its source has filled its part of the log
};

const char* to_text(JoinEvent::Kind kind) noexcept;

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
    return 3 * (process_count + kSilentCountMax + 1);
  }
  // The limit of open files that this needs, with the other files of its process.
  static constexpr uint64_t open_files_min(uint64_t process_count) noexcept {
    constexpr uint64_t kOthers = 256;
    return descriptor_count_max(process_count) + kOthers;
  }

  // The most silent connections: those without a request yet. When there are more, the user with
  // most of them loses its oldest one; if no user has two, the newest goes.
  static constexpr uint32_t kSilentCountMax = 128;
  // The most messages logged in ten seconds (LogLimit): about connections that are no known
  // process, or whose user may not have their name; about each [[process]]; and more for each of
  // its max_count.
  static constexpr uint32_t kLinesOfStrangers = 16;
  static constexpr uint32_t kLinesOfGrant = 16;
  static constexpr uint32_t kLinesOfProcess = 8;
  // The most connections without a part, and the most new ones, that are served in one turn.
  static constexpr uint32_t kStrangersPerTurn = 16;

  // Ends the server: removes the socket; every joined process sees that the owner is gone.
  // Threads: not the control thread.
  void stop() noexcept;

  // Whether the invariants hold. Cost: a look at each connection. Threads: the control thread, or
  // any before start().
  bool is_valid() const noexcept;

 private:
  // The data of epoll's events: a connection and one of its descriptors, or a mark.
  static constexpr uint64_t kStopMark = UINT64_MAX;  // marks: events of no connection
  static constexpr uint64_t kListenerMark = UINT64_MAX - 1;
  enum class Watched : uint32_t { kSocket = 0, kProcess = 1, kPipe = 2 };
  enum class Phase : uint8_t { kUnused, kConnected, kHandedOver, kJoined, kGone };

  struct Connection {
    Phase phase = Phase::kUnused;
    bool has_ended = false;  // the process
    bool pipe_is_shut = false;
    uint32_t instance = 0;                  // from kHandedOver on
    uint32_t grant = JoinRoster::kNoGrant;  // the grant that its name and its user fit
    uint32_t use = 0;  // recognises late events of a former connection in this place
    pid_t pid = 0;
    uid_t uid = 0;
    uint64_t deadline_ns = 0;
    MemberName process;
    Fd socket;
    Fd pidfd;
    Fd pipe;
    Connection* next_unused = nullptr;
  };

  explicit JoinServer(JoinServerOptions&& options) noexcept;
  Result<void> take_listener() noexcept;
  Result<void> open_epoll() noexcept;
  bool watch_listener() noexcept;
  bool is_valid(const Connection& connection) const noexcept;
  bool is_own_thread() const noexcept { return control_.is_caller(); }
  void run() noexcept;
  void turn() noexcept;
  int milliseconds_to_wait() const noexcept;
  Connection* stranger_of(uint64_t event_data) noexcept;
  void handle(uint64_t event_data) noexcept;
  void check_deadlines() noexcept;
  void release_parts() noexcept;
  void changed(const Connection& connection, bool is_urgent) noexcept;
  void ring_doorbells() noexcept;

  // join_strangers.cc
  void serve_strangers(std::span<const epoll_event> events) noexcept;
  bool accept_one() noexcept;
  void pause_accepting() noexcept;
  void make_room() noexcept;
  void drop_expired() noexcept;
  void no_longer_silent(const Connection& connection) noexcept;
  void answer_request(Connection& connection, const void* packet, size_t bytes) noexcept;
  Result<void> hand_over(Connection& connection, const join::Request& request,
                         bool* may_come) noexcept;
  void refuse(Connection& connection, const Error& error, bool may_come = false) noexcept;

  // join_connections.cc
  uint32_t place_of(const Connection& connection) const noexcept;
  void read_socket(Connection& connection) noexcept;
  void hear(Connection& connection, const void* packet, size_t bytes) noexcept;
  void cut_off(Connection& connection) noexcept;
  void lose(Connection& connection, JoinEvent::Kind kind, const Error& error) noexcept;
  void process_ended(Connection& connection) noexcept;
  void check_quiet(Connection& connection) noexcept;
  void tell(const Connection& connection, JoinEvent::Kind kind, const Error& error = {}) noexcept;
  const char* log_source(uint32_t grant) const noexcept;
  bool watch(Connection& connection, Watched watched, int fd, uint32_t events) noexcept;
  void close_watched(Fd& fd) noexcept;
  void close_socket(Connection& connection) noexcept;
  void forget(Connection& connection) noexcept;

  JoinServerOptions options_;
  std::unique_ptr<JoinRoster> roster_;
  Fd listener_;
  Fd epoll_;
  Fd stop_event_;
  StackedThread thread_;
  ClosingThread closing_;  // closes others' sockets: descriptors may lie in them
  bool is_running_ = false;
  ThreadOwner control_;  // its thread, while it runs
  // Whether its thread has tried to hold the owner's life in all tables; life_ has the result.
  std::atomic<bool> has_tried_life_{false};
  Result<void> life_;

  std::vector<epoll_event> events_;      // room for all events that can come at once
  std::vector<Connection> connections_;  // the most that there can be
  FreeList<&Connection::next_unused> unused_;
  std::vector<uint32_t> silent_;  // places of those in Phase::kConnected, oldest first
  uint32_t joining_count_ = 0;    // connections in Phase::kHandedOver
  uint32_t quiet_count_ = 0;      // instances to be released
  bool is_renewing_ = false;      // the last turn renewed something: there may be more
  uint32_t release_from_ = 0;     // the place to begin at
  bool is_stopping_ = false;
  uint64_t release_interval_ns_ = 0;
  uint64_t release_due_ns_ = 0;
  uint64_t accept_again_ns_ = 0;       // no descriptor was free: accepts again at this time
  std::vector<uint64_t> wake_due_ns_;  // of each group; 0: no change to tell
  std::vector<LogLimit> log_limits_;   // of each grant, and the last one of strangers
};

}  // namespace bedplate
