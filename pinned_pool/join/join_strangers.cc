// New connections: from accept() until their process gets a part, or is refused.
//
// Anybody can connect, as often as the system permits. So all work here has a budget for each turn
// (JoinServer::turn), and silent connections are shared out among users.
#include "pinned_pool/join/join_server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "platform/units.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

namespace bedplate {
namespace {

constexpr uint64_t kAcceptPauseNs = 100 * kNsPerMs;

// Opens a pidfd of the process at the other end. Without SO_PEERPIDFD its number may have become
// another process's if it has ended; but then its connection has hung up, which is noticed.
Fd open_pidfd(int socket, pid_t pid) noexcept {
  int number = -1;
  socklen_t bytes = sizeof number;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &number, &bytes) == 0) return Fd(number);
  return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

// Whether the joiner has hung up: its patience may end before the owner has a core for it.
bool has_gone(int socket) noexcept {
  pollfd asked = {socket, 0, 0};
  return poll(&asked, 1, 0) == 1 && (asked.revents & POLLHUP) != 0;
}

}  // namespace

// Serves present connections first: they are kSilentCountMax at most, so newcomers get their turn.
void JoinServer::serve_strangers(std::span<const epoll_event> events) noexcept {
  uint32_t budget = kStrangersPerTurn;
  bool may_accept = false;
  for (const epoll_event& event : events) {
    if (event.data.u64 == kListenerMark) {
      may_accept = true;
    } else if (Connection* stranger = stranger_of(event.data.u64); stranger && budget > 0) {
      --budget;
      read_socket(*stranger);
    }
  }
  while (may_accept && budget-- > 0) may_accept = accept_one();
}

// Accepts a connection. Returns true if there may be another one.
bool JoinServer::accept_one() noexcept {
  Fd socket(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.is_open()) {
    if (errno == ECONNABORTED || errno == EINTR) return true;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      pause_accepting();
    }
    return false;
  }
  BP_ASSERT(!unused_.is_empty());
  Connection& connection = *unused_.first();
  ucred peer = {};
  socklen_t bytes = sizeof peer;
  if (getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 ||
      !watch(connection, Watched::kSocket, socket.number(), EPOLLIN)) {
    closing_.close(socket);
    return true;
  }
  unused_.pop();
  connection.phase = Phase::kConnected;
  connection.pid = peer.pid;
  connection.uid = peer.uid;
  connection.socket = std::move(socket);
  connection.deadline_ns = monotonic_ns() + options_.request_timeout_ns;
  silent_.push_back(place_of(connection));
  BP_ASSERT(silent_.size() <= kSilentCountMax + 1);  // the room that was reserved
  BP_DCHECK_SLOW(is_valid());
  read_socket(connection);  // most have sent their request already
  if (silent_.size() > kSilentCountMax) make_room();
  return true;
}

// No descriptor is free for a connection. The listener stays readable, so it is not watched
// meanwhile.
void JoinServer::pause_accepting() noexcept {
  const Error error = error_from_errno("accepting a process that wants to join")
                          .set_cure("it waits; raise the limit of open files (ulimit -n)");
  epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, listener_.number(), nullptr);
  accept_again_ns_ = monotonic_ns() + kAcceptPauseNs;
  const uint32_t strangers = roster_->grant_count();
  if (log_limits_[strangers].try_pass(log_source(strangers))) log_error(error);
}

// Drops a silent connection: the oldest of the user who has most, so that no user can push out
// another's; if no user has two, the newest.
void JoinServer::make_room() noexcept {
  const auto count_of = [this](uint32_t place) {
    return std::count_if(silent_.begin(), silent_.end(), [&](uint32_t other) {
      return connections_[other].uid == connections_[place].uid;
    });
  };
  uint32_t leaves = silent_.back();
  auto most = count_of(leaves);
  if (most > 1)
    leaves = *std::find_if(silent_.begin(), silent_.end(), [&](uint32_t other) {
      return connections_[other].uid == connections_[leaves].uid;
    });
  for (const uint32_t place : silent_) {
    const auto count = count_of(place);
    if (count <= most) continue;
    most = count;
    leaves = place;
  }
  Connection& connection = connections_[leaves];
  BP_ASSERT(connection.phase == Phase::kConnected);
  refuse(connection,
         error_while("joining the pool")
             .set_answer("%zu connect and say nothing, %td of them of user %u", silent_.size(),
                         most, connection.uid)
             .set_cure("try again; say who joins right after connecting"),
         true);
}

// Drops silent connections whose time is over.
void JoinServer::drop_expired() noexcept {
  const uint64_t now = monotonic_ns();
  while (!silent_.empty() && connections_[silent_.front()].deadline_ns <= now) {
    Error error = error_while("joining the pool")
                      .set_answer("nothing was said in time")
                      .set_cure("say it within %s of connecting",
                                format_rounded_ns(options_.request_timeout_ns).text);
    refuse(connections_[silent_.front()], error, true);  // it may have had no core
  }
}

void JoinServer::no_longer_silent(const Connection& connection) noexcept {
  const auto its = std::find(silent_.begin(), silent_.end(), place_of(connection));
  BP_ASSERT(its != silent_.end());
  silent_.erase(its);
}

void JoinServer::answer_request(Connection& connection, const void* packet, size_t bytes) noexcept {
  join::Request request;
  std::memcpy(static_cast<void*>(&request), packet, sizeof request);
  Error error;
  if (auto checked = join::check_request(request, bytes, options_.pool->base()); !checked.ok()) {
    error = checked.error();
    error.set_doing("joining the pool");
    return refuse(connection, error);
  }
  connection.process = request.process;
  connection.grant = roster_->find_grant(request.process, connection.uid);
  bool may_come = false;
  if (auto handed = hand_over(connection, request, &may_come); !handed.ok()) {
    refuse(connection, handed.error(), may_come);
  }
}

Result<void> JoinServer::hand_over(Connection& connection, const join::Request& request,
                                   bool* may_come) noexcept {
  BP_ASSERT(connection.phase == Phase::kConnected);
  const auto failed = [&request] {
    return error_from_errno("joining the pool as %s", request.process.text);
  };
  // Comes before anything is opened, so that a refusal is cheap.
  auto found = roster_->find_place(request, connection.uid, may_come);
  if (!found.ok()) return found.error();
  if (has_gone(connection.socket.number())) {
    return error_while("joining the pool as %s", request.process.text)
        .set_answer("it has gone without waiting for the answer")
        .set_cure("let it wait longer");
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
  if (!watch(connection, Watched::kProcess, connection.pidfd.number(), EPOLLIN) ||
      !watch(connection, Watched::kPipe, connection.pipe.number(), 0)) {  // 0: a hang-up is told
    return failed().set_cure("raise the limit of watched files: sysctl fs.epoll.max_user_watches");
  }
  roster_->admit(found.value(), request, connection.pid);
  no_longer_silent(connection);
  connection.instance = found.value();
  connection.phase = Phase::kHandedOver;
  connection.deadline_ns = monotonic_ns() + options_.ready_timeout_ns;
  ++joining_count_;
  BP_DCHECK_SLOW(is_valid());
  changed(connection, false);
  join::Accepted accepted;
  int descriptors[join::kDescriptorCountMax];
  uint32_t count = roster_->describe(connection.instance, &accepted, descriptors);
  BP_ASSERT(count < join::kDescriptorCountMax);
  descriptors[count++] = write_end.number();
  const int outcome = join::send_packet(connection.socket.number(), &accepted, accepted.bytes(),
                                        {descriptors, count});
  if (outcome != 0) {
    // Its place stays taken until the process has ended, as if it had failed by itself.
    Error error = failed().set_answer_errno(outcome).set_cure("try again in a new process");
    lose(connection, JoinEvent::Kind::kFailed, error);
  }
  return {};
}

// Refuses a connection. `may_come`: the cause may pass; the joiner tries again until its timeout.
void JoinServer::refuse(Connection& connection, const Error& error, bool may_come) noexcept {
  const join::Explained explained =
      join::explain(may_come ? join::PacketKind::kNotNow : join::PacketKind::kRefused, error);
  join::send_packet(connection.socket.number(), &explained, sizeof explained);
  tell(connection, JoinEvent::Kind::kRefused, error);
  forget(connection);
}

}  // namespace bedplate
