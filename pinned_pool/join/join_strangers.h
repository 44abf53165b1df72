// New connections: from accept() until their process gets a part, or is refused.
//
// Anybody can connect, as often as the system permits. A connection that sends nothing or garbage
// costs a bounded time, and a slot until its deadline. All work here has a budget for each turn
// (JoinServer), and no user can push out another's silent connections (JoinConnections).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/epoll.h>

#include "pinned_pool/join/join_acceptor.h"
#include "pinned_pool/join/join_connections.h"
#include "pinned_pool/join/join_processes.h"
#include "pinned_pool/join/join_protocol.h"
#include "pinned_pool/join/join_reports.h"
#include "pinned_pool/join/join_roster.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/result.h"

namespace bedplate {

// Threads: the control thread's.
class JoinStrangers {
 public:
  // The most connections that one turn serves: those without a part, and new ones, together.
  static constexpr uint32_t kPerTurn = 16;

  struct Options {
    const PinnedPool* pool = nullptr;
    uint64_t request_timeout_ns = 0;  // from accept() to the request
  };

  // All arguments outlive this. A stranger that gets a part belongs to `processes` from then on.
  JoinStrangers(const Options& options, JoinAcceptor& acceptor, JoinConnections& connections,
                JoinRoster& roster, JoinReports& reports, JoinProcesses& processes) noexcept
      : options_(options),
        acceptor_(acceptor),
        connections_(connections),
        roster_(roster),
        reports_(reports),
        processes_(processes) {}
  JoinStrangers(const JoinStrangers&) = delete;
  JoinStrangers& operator=(const JoinStrangers&) = delete;

  // Serves the strangers among a turn's events, and accepts new ones.
  void serve(std::span<const epoll_event> events) noexcept;
  // Drops silent connections past their deadline; ends a pause of the acceptor that is over.
  void check_deadlines() noexcept;
  // The time of the next check_deadlines(); UINT64_MAX: none is needed.
  uint64_t due_ns() const noexcept;

 private:
  bool accept_one() noexcept;
  void read(JoinConnection& connection) noexcept;
  void answer_request(JoinConnection& connection, const join::Request& request,
                      size_t bytes) noexcept;
  Result<void> give_part(JoinConnection& connection, const join::Request& request,
                         bool* may_come) noexcept;
  void make_room() noexcept;
  void drop_expired() noexcept;
  void refuse(JoinConnection& connection, const Error& error, bool may_come = false) noexcept;

  const Options options_;
  JoinAcceptor& acceptor_;
  JoinConnections& connections_;
  JoinRoster& roster_;
  JoinReports& reports_;
  JoinProcesses& processes_;
};

}  // namespace bedplate
