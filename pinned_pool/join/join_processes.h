// The processes that have a part of the pool, from handing it over until they are forgotten.
//
//   handed over -> ready: alive -> leaves, hangs up or ends: dead
//               -> has ended and its pipe hung up: quiet -> forgotten, wiped: free
//
// Three descriptors of a process are watched: its connection (its packets), a pidfd (if it lives),
// and the read end of its quiet pipe (if a forked child, or an io_uring that outlasts the process,
// may still touch the pool).
//
// Invariants, which is_valid() checks before and after each change of phase: 1. joining_count_
// connections are in kHandedOver. 2. From kHandedOver on a connection has a part, with the state of
// its phase and with its process; no part lacks a connection. 3. As many parts are to be released
// as releases_ counts; their processes have ended and their pipes are shut.
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
  // `ready_timeout_ns`: from getting its part to being ready. The others outlive it.
  JoinProcesses(JoinRoster& roster, JoinConnections& connections, JoinReports& reports,
                GroupDoorbells& doorbells, uint64_t ready_timeout_ns) noexcept
      : roster_(roster),
        connections_(connections),
        reports_(reports),
        doorbells_(doorbells),
        ready_timeout_ns_(ready_timeout_ns) {}
  JoinProcesses(const JoinProcesses&) = delete;
  JoinProcesses& operator=(const JoinProcesses&) = delete;

  // Gives the process of a silent connection the part `instance`, with the write end of its quiet
  // pipe. Requires: JoinRoster::find_place() has just found it; pidfd and pipe are watched.
  void hand_over(JoinConnection& connection, uint32_t instance, const join::Request& request,
                 const Fd& quiet_pipe) noexcept;

  // Reads all packets that have come from a process with a part.
  void read(JoinConnection& connection) noexcept;
  // Handles an event of a connection with a part.
  void handle(JoinConnection& connection, JoinConnections::Watched watched) noexcept;
  // Ends those that did not get ready in time.
  void end_late_ones() noexcept;
  // Goes on with parts that are to be given out again.
  void release_parts() noexcept;
  // When end_late_ones() or release_parts() is to be called again; UINT64_MAX: there is no need.
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
