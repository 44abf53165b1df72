// The connections of processes to the owner of a pool: a fixed array of slots, each with the
// descriptors of its connection. A connection is silent until it has sent its request.
//
// Invariants, which is_valid() checks: 1. An unused connection has nothing open and is in the list
// of unused ones. 2. The list of silent ones has each connection in kConnected, once, oldest first;
// such a connection has only its socket open. 3. A connection's socket is open while the server
// reads packets from it: until kGone.
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
  bool has_ended = false;  // the process has ended
  bool pipe_is_shut = false;
  uint32_t instance = 0;                  // from kHandedOver on
  uint32_t grant = JoinRoster::kNoGrant;  // the grant that matches its name and its user
  uint32_t use = 0;  // distinguishes late events of a former connection in this slot
  pid_t pid = 0;
  uid_t uid = 0;
  uint64_t deadline_ns = 0;
  MemberName process;
  Fd socket;
  Fd pidfd;
  Fd pipe;
  JoinConnection* next_unused = nullptr;

  // The process has its part, or had it and is not forgotten yet.
  bool has_part() const noexcept { return phase >= Phase::kHandedOver; }
  // The process, its children and its rings can write no more.
  bool is_quiet() const noexcept { return has_ended && pipe_is_shut; }
};

// Threads: the control thread's.
class JoinConnections {
 public:
  using Phase = JoinConnection::Phase;
  // The watched descriptors of a connection.
  enum class Watched : uint32_t { kSocket = 0, kProcess = 1, kPipe = 2 };
  static constexpr size_t kWatchedCount = 3;

  // The most silent connections. Beyond that, the user with most of them loses its oldest one; if
  // no user has two, the newest is dropped.
  static constexpr uint32_t kSilentCountMax = 128;

  // Allocates slots for `process_count` processes and all silent connections. `watch` and `closing`
  // outlive this object.
  JoinConnections(JoinWatch& watch, ClosingThread& closing, uint32_t process_count);
  JoinConnections(const JoinConnections&) = delete;
  JoinConnections& operator=(const JoinConnections&) = delete;

  std::span<JoinConnection> all() noexcept { return connections_; }
  std::span<const JoinConnection> all() const noexcept { return connections_; }

  // Begins a silent connection. Returns nullptr if the system does not name its process, or cannot
  // watch its socket; the socket is then closed. Requires: silent_count() <= kSilentCountMax.
  JoinConnection* begin(Fd&& socket, uint64_t deadline_ns) noexcept;
  // Frees the slot of a connection. Requires: it is silent; or it is in kGone, and quiet.
  void forget(JoinConnection& connection) noexcept;
  // Closes all descriptors, at the end: the invariants do not hold afterwards.
  void close_all() noexcept;

  // Watches a descriptor of the connection: for packets, the process's end, or the pipe's hang-up.
  // Returns false with errno set.
  bool watch(const JoinConnection& connection, Watched watched) noexcept;
  // Closes a descriptor. The closing thread closes the socket: unread descriptors may lie in it.
  void close(JoinConnection& connection, Watched watched) noexcept;
  // The connection of an event; nullptr: the event is of a former connection in that slot.
  // Requires: the event is a connection's.
  JoinConnection* find(uint64_t event_data) noexcept;
  static Watched watched_of(uint64_t event_data) noexcept {
    return static_cast<Watched>(event_data & 3);
  }

  size_t silent_count() const noexcept { return silent_.size(); }
  // The oldest silent connection; nullptr: there is none.
  JoinConnection* oldest_silent() noexcept;
  // The deadline of the oldest silent connection; UINT64_MAX: there is none.
  uint64_t silent_due_ns() const noexcept;
  // Chooses the silent connection to drop if there are too many: the oldest connection of the user
  // with most, so that no user can push out another's; if no user has two, the newest connection.
  // `its_user_has`: gets the number of silent connections of that user. Requires: there is a silent
  // connection.
  JoinConnection& choose_to_drop(ptrdiff_t* its_user_has) noexcept;
  // The connection is silent no more. The caller sets its phase.
  void end_silence(const JoinConnection& connection) noexcept;

  // Whether the invariants hold. Cost: a look at each connection.
  bool is_valid() const noexcept;

 private:
  uint32_t index_of(const JoinConnection& connection) const noexcept;
  bool are_silent_ones_valid() const noexcept;

  JoinWatch& watch_;
  ClosingThread& closing_;
  std::vector<JoinConnection> connections_;  // one slot for each possible connection
  FreeList<&JoinConnection::next_unused> unused_;
  std::vector<uint32_t> silent_;  // slots in kConnected, oldest first
};

}  // namespace bedplate
