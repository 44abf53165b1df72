// What a connection goes through: from accept to the day when its process is forgotten.
#include "pinned_pool/join_server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/log.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

namespace bedplate {
namespace {

constexpr uint64_t kAcceptPauseNs = 100 * kNsPerMs;

constinit OncePerSecond strangers_log;

// The process at the other end, for sure where the kernel has SO_PEERPIDFD. Before, its number can
// only have become another's if it ended already: then its connection has hung up, which is seen.
Fd open_pidfd(int socket, pid_t pid) noexcept {
  int number = -1;
  socklen_t bytes = sizeof number;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &number, &bytes) == 0) return Fd(number);
  return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

bool JoinServer::watch(Connection& connection, Watched watched, int fd, uint32_t events) noexcept {
  const auto place = static_cast<uint64_t>(&connection - connections_.data());
  epoll_event event = {};
  event.events = events;
  event.data.u64 = uint64_t{connection.use} << 32 | place << 2 | static_cast<uint64_t>(watched);
  return epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, fd, &event) == 0;
}

// A forked child may have the descriptor, too, and keep what it stands for in the epoll.
void JoinServer::close_watched(Fd& fd) noexcept {
  if (fd.is_open()) epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, fd.number(), nullptr);
  fd.close();
}

void JoinServer::accept_all() noexcept {
  while (accept_one()) {
  }
}

// Returns whether there may be another one.
bool JoinServer::accept_one() noexcept {
  if (connected_count_ == kConnectedCountMax) drop_silent(false);
  Fd socket(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.is_open()) {
    if (errno == ECONNABORTED || errno == EINTR) return true;
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return false;
    // Nobody can be answered; and the listener stays readable, so it must not be asked meanwhile.
    epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, listener_.number(), nullptr);
    accept_again_ns_ = monotonic_ns() + kAcceptPauseNs;
    ++waiting_count_;
    log_error(error_from_errno("accepting a process that wants to join")
                  .set_cure("it waits; raise the limit of open files (ulimit -n)"));
    return false;
  }
  BP_ASSERT(!unused_.empty());
  Connection& connection = connections_[unused_.back()];
  ucred peer = {};
  socklen_t bytes = sizeof peer;
  if (getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 ||
      !watch(connection, Watched::kSocket, socket.number(), EPOLLIN)) {
    return true;
  }
  unused_.pop_back();
  connection.phase = Phase::kConnected;
  connection.pid = peer.pid;
  connection.uid = peer.uid;
  connection.socket = std::move(socket);
  connection.deadline_ns = monotonic_ns() + options_.request_timeout_ns;
  ++waiting_count_;
  ++connected_count_;
  read_socket(connection);  // most have said it already
  return true;
}

// Of those who have not said who they are: the oldest one, or all whose time is over.
void JoinServer::drop_silent(bool all_expired) noexcept {
  const uint64_t now = monotonic_ns();
  Connection* oldest = nullptr;
  for (Connection& connection : connections_) {
    if (connection.phase != Phase::kConnected) continue;
    if (oldest == nullptr || connection.deadline_ns < oldest->deadline_ns) oldest = &connection;
    if (!all_expired || now < connection.deadline_ns) continue;
    Error error;
    error.set_doing("joining the pool").set_answer("nothing was said in time");
    refuse(connection, error.set_cure("say it within %llu ms of connecting",
                                      static_cast<unsigned long long>(
                                          options_.request_timeout_ns / kNsPerMs)));
  }
  if (all_expired || oldest == nullptr) return;
  Error error;
  error.set_doing("joining the pool").set_answer("too many connect and say nothing");
  refuse(*oldest, error.set_cure("try again"));
}

void JoinServer::read_socket(Connection& connection) noexcept {
  alignas(8) std::byte packet[sizeof(join::Explained)];
  static_assert(sizeof packet >= sizeof(join::Request));
  // A process that is gone from here is read no further.
  while (connection.socket.is_open()) {
    const int64_t got = join::receive_packet(connection.socket.number(), packet, sizeof packet);
    if (got == -EAGAIN) return;
    if (got <= 0) {
      if (connection.phase == Phase::kConnected) return forget(connection);
      Error error;
      error.set_doing("being joined to the pool as %s", connection.process.text);
      return lose(connection, JoinEvent::Kind::kDied,
                  error.set_answer("the connection was closed without leaving")
                      .set_cure("look why the process ended; on its own it calls leave() first"));
    }
    if (connection.phase == Phase::kConnected) {
      answer_request(connection, packet, static_cast<size_t>(got));
    } else {
      hear(connection, packet, static_cast<size_t>(got));
    }
  }
}

void JoinServer::answer_request(Connection& connection, const void* packet,
                                size_t bytes) noexcept {
  join::Request request;
  std::memcpy(static_cast<void*>(&request), packet, sizeof request);
  Error error;
  if (auto checked = join::check_request(request, bytes, options_.pool->base()); !checked.ok()) {
    error = checked.error();
    error.set_doing("joining the pool");
    return refuse(connection, error);
  }
  connection.process = request.process;
  if (auto handed = hand_over(connection, request); !handed.ok()) {
    refuse(connection, handed.error());
  }
}

Result<void> JoinServer::hand_over(Connection& connection, const join::Request& request) noexcept {
  const auto failed = [&request] {
    return error_from_errno("joining the pool as %s", request.process.text);
  };
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
  auto admitted = roster_->admit(request, connection.uid, connection.pid);
  if (!admitted.ok()) return admitted.error();

  connection.instance = admitted.value();
  connection.phase = Phase::kHandedOver;
  connection.deadline_ns = monotonic_ns() + options_.ready_timeout_ns;
  --connected_count_;
  changed(connection, false);
  join::Accepted accepted;
  int descriptors[join::kDescriptorCountMax];
  uint32_t count = roster_->describe(connection.instance, &accepted, descriptors);
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

// What a process says that was given its part.
void JoinServer::hear(Connection& connection, const void* packet, size_t bytes) noexcept {
  join::Head head = {.kind = join::PacketKind::kRefused};
  std::memcpy(static_cast<void*>(&head), packet, std::min(bytes, sizeof head));
  const bool is_joining = connection.phase == Phase::kHandedOver;
  auto checked = join::check_head(packet, bytes, head.kind, sizeof head, sizeof(join::Explained));
  if (checked.ok() && head.kind == join::PacketKind::kReady && is_joining) {
    connection.phase = Phase::kJoined;
    --waiting_count_;
    roster_->set_alive(connection.instance);
    changed(connection, false);
    return tell(connection, JoinEvent::Kind::kJoined);
  }
  if (checked.ok() && head.kind == join::PacketKind::kLeave && !is_joining) {
    return lose(connection, JoinEvent::Kind::kLeft, Error{});
  }
  if (checked.ok() && head.kind == join::PacketKind::kFailed && is_joining &&
      bytes == sizeof(join::Explained)) {
    join::Explained explained;
    std::memcpy(static_cast<void*>(&explained), packet, sizeof explained);
    return lose(connection, JoinEvent::Kind::kFailed, join::told(explained));
  }
  Error error;
  error.set_doing("being joined to the pool as %s", connection.process.text);
  error.set_answer("the process said something that makes no sense");
  lose(connection, JoinEvent::Kind::kDied, error.set_cure("it is cut off; end it"));
}

void JoinServer::refuse(Connection& connection, const Error& error) noexcept {
  const join::Explained explained = join::explain(join::PacketKind::kRefused, error);
  join::send_packet(connection.socket.number(), &explained, sizeof explained);
  tell(connection, JoinEvent::Kind::kRefused, error);
  forget(connection);
}

// A process that was given its part: from now on it is dead to the others.
void JoinServer::lose(Connection& connection, JoinEvent::Kind kind, const Error& error) noexcept {
  BP_ASSERT(connection.phase == Phase::kHandedOver || connection.phase == Phase::kJoined);
  if (connection.phase == Phase::kHandedOver) --waiting_count_;
  connection.phase = Phase::kGone;
  close_watched(connection.socket);
  if (kind == JoinEvent::Kind::kLeft) roster_->set_stopped(connection.instance);
  roster_->set_dead(connection.instance);
  changed(connection, true);
  tell(connection, kind, error);
}

void JoinServer::process_ended(Connection& connection) noexcept {
  connection.has_ended = true;
  close_watched(connection.pidfd);
  // What it said last is heard first: it may have left in good order.
  if (connection.phase != Phase::kGone) read_socket(connection);
  // Before the others hear of its death, and also of one that was dead by name.
  roster_->set_stopped(connection.instance);
  if (connection.phase != Phase::kGone) {
    Error error;
    error.set_doing("being joined to the pool as %s", connection.process.text);
    lose(connection, JoinEvent::Kind::kDied,
         error.set_answer("the process ended").set_cure("look why; on its own it leaves first"));
  }
  quieten(connection);
}

void JoinServer::quieten(Connection& connection) noexcept {
  if (!connection.has_ended || !connection.pipe_is_shut) return;
  roster_->set_quiet(connection.instance);
  changed(connection, false);
  tell(connection, JoinEvent::Kind::kQuiet);
  ++quiet_count_;
  release_interval_ns_ = release_due_ns_ = 0;
}

void JoinServer::tell(const Connection& connection, JoinEvent::Kind kind,
                      const Error& error) noexcept {
  const bool is_trouble = error.answer[0] != '\0';
  if (is_trouble && (connection.process.text[0] != '\0' || strangers_log.try_pass())) {
    log_error(error);
  }
  if (!options_.on_event) return;
  JoinEvent event;
  event.kind = kind;
  event.process = connection.process;
  event.pid = connection.pid;
  event.error = error;
  if (kind != JoinEvent::Kind::kRefused) {
    const JoinRoster::Instance& instance = roster_->instance(connection.instance);
    event.group = instance.group;
    event.member = instance.members[0];
    event.member_count = instance.member_count;
    event.is_trusted = roster_->grant_of(instance).is_trusted;
  }
  options_.on_event(event);
}

// Its place can be used by another connection.
void JoinServer::forget(Connection& connection) noexcept {
  if (connection.phase == Phase::kConnected) {
    --waiting_count_;
    --connected_count_;
  }
  close_watched(connection.socket);
  close_watched(connection.pidfd);
  close_watched(connection.pipe);
  const uint32_t use = connection.use + 1;
  connection = Connection{};
  connection.use = use;
  unused_.push_back(static_cast<uint32_t>(&connection - connections_.data()));
}

}  // namespace bedplate
