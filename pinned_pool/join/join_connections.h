// The connections of processes to the owner of a pool: a place for each that there can be, with all
// that it has open. A connection is silent until it says who it is.
//
// Invariants, which is_valid() checks: 1. A connection is in use, or unused: then it has nothing
// open and is in the list of unused ones. 2. The list of silent ones has each connection in
// kConnected, once, oldest first; of these only the socket is open. 3. A connection's socket is
// open as long as packets are read from it: until kGone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sys/types.h>

#include "pinned_pool/join/join_roster.h"
#include "pinned_pool/join/join_watch.h"
#include "platform/closing_thread.h"
#include "platform/file.h"
#include "platform/free_list.h"

namespace bedplate {

struct JoinConnection {
  enum class Phase : uint8_t { kUnused, kConnected, kHandedOver, kJoined, kGone };
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
  JoinConnection* next_unused = nullptr;

  // A process has its part, or had it and is not forgotten yet.
  bool has_part() const noexcept { return phase >= Phase::kHandedOver; }
  // Nothing of the process can write any more.
  bool is_quiet() const noexcept { return has_ended && pipe_is_shut; }
};

// Threads: the control thread's.
class JoinConnections {
 public:
  using Phase = JoinConnection::Phase;
  // The descriptors of a connection that are watched.
  enum class Watched : uint32_t { kSocket = 0, kProcess = 1, kPipe = 2 };
  static constexpr size_t kWatchedCount = 3;

  // The most silent connections. When there are more, the user with most of them loses its oldest
  // one; if no user has two, the newest goes.
  static constexpr uint32_t kSilentCountMax = 128;

  // Makes room for `process_count` processes and all silent connections. The others outlive it.
  JoinConnections(JoinWatch& watch, ClosingThread& closing, uint32_t process_count);
  JoinConnections(const JoinConnections&) = delete;
  JoinConnections& operator=(const JoinConnections&) = delete;

  std::span<JoinConnection> all() noexcept { return connections_; }
  std::span<const JoinConnection> all() const noexcept { return connections_; }

  // Begins a silent connection. Returns nullptr if the system does not name its process, or cannot
  // watch its socket, which is closed then.
  JoinConnection* begin(Fd&& socket, uint64_t deadline_ns) noexcept;
  // Frees its place for another one. Requires: it is silent; or it is in kGone, and quiet.
  void forget(JoinConnection& connection) noexcept;
  // Closes all that is open, at the end.
  void close_all() noexcept;

  // Watches a descriptor of the connection: for packets, the process's end, or the pipe's hang-up.
  // Returns false with errno set.
  bool watch(const JoinConnection& connection, Watched watched) noexcept;
  // Closes one. The socket is closed on a thread of its own: descriptors may lie in it.
  void close(JoinConnection& connection, Watched watched) noexcept;
  // The connection that an event is about; nullptr: a former connection in its place.
  // Requires: the event is a connection's.
  JoinConnection* find(uint64_t event_data) noexcept;
  static Watched watched_of(uint64_t event_data) noexcept {
    return static_cast<Watched>(event_data & 3);
  }

  size_t silent_count() const noexcept { return silent_.size(); }
  // nullptr: there is none.
  JoinConnection* oldest_silent() noexcept;
  // When the oldest silent one has had its time; UINT64_MAX: there is none.
  uint64_t silent_due_ns() const noexcept;
  // The silent connection to drop when there are too many, and the number of its user's: the oldest
  // of the user who has most, so that no user can push out another's; if no user has two, the
  // newest. Requires: there is one.
  JoinConnection& choose_to_drop(ptrdiff_t* its_user_has) noexcept;
  // It has said who it is. The caller sets its phase.
  void end_silence(const JoinConnection& connection) noexcept;

  // Whether the invariants hold. Cost: a look at each connection.
  bool is_valid() const noexcept;

 private:
  uint32_t place_of(const JoinConnection& connection) const noexcept;
  bool are_silent_ones_valid() const noexcept;

  JoinWatch& watch_;
  ClosingThread& closing_;
  std::vector<JoinConnection> connections_;  // the most that there can be
  FreeList<&JoinConnection::next_unused> unused_;
  std::vector<uint32_t> silent_;  // places of those in kConnected, oldest first
};

}  // namespace bedplate
