#include "pinned_pool/join/join_strangers.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pinned_pool/join/join_watch.h"
#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/units.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

namespace bedplate {
namespace {

using Phase = JoinConnection::Phase;
using Watched = JoinConnections::Watched;

// Opens a pidfd of the process at the other end. Without SO_PEERPIDFD, an ended process's number
// may belong to another one by now; but then the connection has hung up, which is noticed.
Fd open_pidfd(int socket, pid_t pid) noexcept {
  int number = -1;
  socklen_t bytes = sizeof number;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &number, &bytes) == 0) return Fd(number);
  return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

// Whether the joiner has hung up: its timeout may end before the owner gets a core to serve it.
bool has_gone(int socket) noexcept {
  pollfd asked = {socket, 0, 0};
  return poll(&asked, 1, 0) == 1 && (asked.revents & POLLHUP) != 0;
}

}  // namespace

// Serves present connections first: there are at most kSilentCountMax, so new ones get their turn.
void JoinStrangers::serve(std::span<const epoll_event> events) noexcept {
  uint32_t budget = kPerTurn;
  bool may_accept = false;
  for (const epoll_event& event : events) {
    if (event.data.u64 == JoinWatch::kListenerMark) {
      may_accept = true;
      continue;
    }
    JoinConnection* connection = connections_.find(event.data.u64);
    if (connection == nullptr || connection->phase != Phase::kConnected || budget == 0) continue;
    --budget;
    read(*connection);
  }
  while (may_accept && budget-- > 0) may_accept = accept_one();
}

// Accepts a connection. Returns true if there may be another one.
bool JoinStrangers::accept_one() noexcept {
  Fd socket;
  switch (acceptor_.accept(&socket)) {
    case JoinAcceptor::Outcome::kAccepted: break;
    case JoinAcceptor::Outcome::kWentAway: return true;
    case JoinAcceptor::Outcome::kNone: return false;
    case JoinAcceptor::Outcome::kFailed: {
      const Error error =
          error_from_errno("accepting a process that wants to join")
              .set_cure("it waits; free memory, or restart the appliance if this goes on");
      acceptor_.pause();
      reports_.log_of_strangers(error);
      return false;
    }
  }
  const uint64_t deadline_ns = monotonic_ns() + options_.request_timeout_ns;
  JoinConnection* connection = connections_.begin(std::move(socket), deadline_ns);
  if (connection == nullptr) return true;
  read(*connection);  // most requests have arrived already
  if (connections_.silent_count() > JoinConnections::kSilentCountMax) make_room();
  return true;
}

// Reads the connection's request, if it has arrived.
void JoinStrangers::read(JoinConnection& connection) noexcept {
  BP_ASSERT(connection.phase == Phase::kConnected);
  if (join::brings_descriptors(connection.socket.number())) {
    return refuse(connection, error_while("joining the pool")
                                  .set_answer("it sent descriptors that were not requested")
                                  .set_cure("send none"));
  }
  join::Request request;
  const int64_t got = join::receive_packet(connection.socket.number(), &request, sizeof request);
  if (got == -EAGAIN) return;
  if (got <= 0) return connections_.forget(connection);
  answer_request(connection, request, static_cast<size_t>(got));
  if (connection.has_part()) processes_.read(connection);  // further packets may have arrived
}

// `bytes`: the packet's length, which may differ from a request's.
void JoinStrangers::answer_request(JoinConnection& connection, const join::Request& request,
                                   size_t bytes) noexcept {
  if (auto checked = join::check_request(request, bytes, options_.pool->base()); !checked.ok()) {
    Error error = checked.error();
    error.set_doing("joining the pool");
    return refuse(connection, error);
  }
  connection.process = request.process;
  connection.grant = roster_.find_grant(request.process, connection.uid);
  bool may_come = false;
  if (auto handed = give_part(connection, request, &may_come); !handed.ok()) {
    refuse(connection, handed.error(), may_come);
  }
}

// Opens all descriptors that a process with a part needs, and hands the part over.
Result<void> JoinStrangers::give_part(JoinConnection& connection, const join::Request& request,
                                      bool* may_come) noexcept {
  const auto failed = [&request] {
    return error_from_errno("joining the pool as %s", request.process.text);
  };
  // Comes first, so that a refusal opens nothing and is cheap.
  auto found = roster_.find_place(request, connection.uid, may_come);
  if (!found.ok()) return found.error();
  if (has_gone(connection.socket.number())) {
    return error_while("joining the pool as %s", request.process.text)
        .set_answer("it left without waiting for the answer")
        .set_cure("make it wait longer");
  }
  connection.pidfd = open_pidfd(connection.socket.number(), connection.pid);
  if (!connection.pidfd.is_open() || connection.pid == 0) {
    return failed().set_cure("the owner cannot see the process: run both in the same PID "
                             "namespace, on Linux 5.3 or newer");
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed().set_cure("raise the limit of open files");
  connection.pipe = Fd(ends[0]);
  const Fd write_end(ends[1]);
  if (!connections_.watch(connection, Watched::kProcess) ||
      !connections_.watch(connection, Watched::kPipe)) {
    return failed().set_cure("raise the limit of watched files: sysctl fs.epoll.max_user_watches");
  }
  processes_.hand_over(connection, found.value(), request, write_end);
  return {};
}

// Drops a silent connection, because there is one too many.
void JoinStrangers::make_room() noexcept {
  ptrdiff_t its_user_has = 0;
  JoinConnection& connection = connections_.choose_to_drop(&its_user_has);
  refuse(connection,
         error_while("joining the pool")
             .set_answer("%zu connections have sent nothing, %td of them of user %u",
                         connections_.silent_count(), its_user_has, connection.uid)
             .set_cure("try again; send the request right after connecting"),
         true);
}

void JoinStrangers::check_deadlines() noexcept {
  if (due_ns() == UINT64_MAX) return;
  drop_expired();
  acceptor_.resume_if_due(monotonic_ns());
}

uint64_t JoinStrangers::due_ns() const noexcept {
  return std::min(acceptor_.due_ns(), connections_.silent_due_ns());
}

// Drops silent connections past their deadline.
void JoinStrangers::drop_expired() noexcept {
  const uint64_t now = monotonic_ns();
  while (connections_.silent_due_ns() <= now) {
    Error error = error_while("joining the pool")
                      .set_answer("it sent no request in time")
                      .set_cure("send it within %s of connecting",
                                format_rounded_ns(options_.request_timeout_ns).text);
    refuse(*connections_.oldest_silent(), error, true);  // true: it may have had no core
  }
}

// Refuses a connection. `may_come`: the cause may pass; the joiner tries again until its timeout.
void JoinStrangers::refuse(JoinConnection& connection, const Error& error, bool may_come) noexcept {
  const join::Explained explained =
      join::explain(may_come ? join::PacketKind::kNotNow : join::PacketKind::kRefused, error);
  join::send_packet(connection.socket.number(), &explained, sizeof explained);
  reports_.tell(connection, JoinEvent::Kind::kRefused, error);
  connections_.forget(connection);
}

}  // namespace bedplate
