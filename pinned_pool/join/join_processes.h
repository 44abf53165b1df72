// The processes that have a part of the pool, from the hand-over until they are forgotten.
//
//   event                                                    state of the part
//   hand_over()                                              joining
//   the process reports that it is ready                     alive
//   it leaves, fails, is late, hangs up, or ends             dead
//   it has ended, and its quiet pipe is shut                 quiet
//   its part is wiped, and its connection is forgotten       free
//
// Three descriptors of a process are watched: its connection (for packets), a pidfd (for its end),
// and the read end of its quiet pipe. A forked child, or an io_uring that outlasts the process,
// keeps the write end open while it may still access the pool.
//
// Invariants, which is_valid() checks before and after each change of phase: 1. joining_count_ is
// the number of connections in kHandedOver. 2. From kHandedOver on a connection has a part, whose
// state and process match the connection; every part in use has a connection. 3. releases_ counts
// the parts to be released; their processes have ended and their pipes are shut.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pinned_pool/join/group_doorbells.h"
#include "pinned_pool/join/join_connections.h"
#include "pinned_pool/join/join_protocol.h"
#include "pinned_pool/join/join_reports.h"
#include "pinned_pool/join/join_roster.h"
#include "pinned_pool/join/part_releases.h"
#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// Threads: the control thread's.
class JoinProcesses {
 public:
  // `ready_timeout_ns`: the time from the hand-over to kReady. The other arguments outlive this
  // object.
  JoinProcesses(JoinRoster& roster, JoinConnections& connections, JoinReports& reports,
                GroupDoorbells& doorbells, uint64_t ready_timeout_ns) noexcept
      : roster_(roster),
        connections_(connections),
        reports_(reports),
        doorbells_(doorbells),
        ready_timeout_ns_(ready_timeout_ns) {}
  JoinProcesses(const JoinProcesses&) = delete;
  JoinProcesses& operator=(const JoinProcesses&) = delete;

  // Gives the part `instance` and the write end of the quiet pipe to the process of a connection in
  // kConnected. Requires: JoinRoster::find_place() has just found the part; pidfd and pipe are
  // watched.
  void hand_over(JoinConnection& connection, uint32_t instance, const join::Request& request,
                 const Fd& quiet_pipe) noexcept;

  // Reads all packets that a process with a part has sent.
  void read(JoinConnection& connection) noexcept;
  // Handles an event of a connection with a part.
  void handle(JoinConnection& connection, JoinConnections::Watched watched) noexcept;
  // Declares processes dead that did not report in time that they are ready; does not kill them.
  void end_late_ones() noexcept;
  // Continues the release of parts of quiet processes.
  void release_parts() noexcept;
  // The time of the next end_late_ones() or release_parts(); UINT64_MAX: none is needed.
  uint64_t due_ns() const noexcept;

  // Whether the invariants hold, and those of the connections. Cost: a look at each connection and
  // each part.
  bool is_valid() const noexcept;

 private:
  using Phase = JoinConnection::Phase;
  using Watched = JoinConnections::Watched;

  bool is_valid(const JoinConnection& connection) const noexcept;
  void hear(JoinConnection& connection, const void* packet, size_t bytes) noexcept;
  void became_ready(JoinConnection& connection) noexcept;
  void cut_off(JoinConnection& connection) noexcept;
  void lose(JoinConnection& connection, JoinEvent::Kind kind, const Error& error) noexcept;
  void no_longer_joining() noexcept;
  void process_ended(JoinConnection& connection) noexcept;
  void check_quiet(JoinConnection& connection) noexcept;
  void changed(const JoinConnection& connection, bool is_urgent) noexcept;

  JoinRoster& roster_;
  JoinConnections& connections_;
  JoinReports& reports_;
  GroupDoorbells& doorbells_;
  const uint64_t ready_timeout_ns_;
  uint32_t joining_count_ = 0;  // connections in kHandedOver
  PartReleases releases_;
};

}  // namespace bedplate
