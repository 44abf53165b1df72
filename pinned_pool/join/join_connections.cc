// Connections whose process has a part, until they are forgotten.
#include "pinned_pool/join/join_server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/epoll.h>
#include <unistd.h>

#include "platform/log.h"

namespace bedplate {

uint32_t JoinServer::place_of(const Connection& connection) const noexcept {
  BP_DCHECK(&connection >= connections_.data() &&
            &connection < connections_.data() + connections_.size());
  return static_cast<uint32_t>(&connection - connections_.data());
}

bool JoinServer::watch(Connection& connection, Watched watched, int fd, uint32_t events) noexcept {
  const uint64_t place = place_of(connection);
  epoll_event event = {};
  event.events = events;
  event.data.u64 = uint64_t{connection.use} << 32 | place << 2 | static_cast<uint64_t>(watched);
  return epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, fd, &event) == 0;
}

// Removes the descriptor from the epoll before closing it: a forked child may have a copy, which
// would keep the file there.
void JoinServer::close_watched(Fd& fd) noexcept {
  if (fd.is_open()) epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, fd.number(), nullptr);
  fd.close();
}

void JoinServer::close_socket(Connection& connection) noexcept {
  const Fd& socket = connection.socket;
  if (socket.is_open()) epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, socket.number(), nullptr);
  closing_.close(connection.socket);
}

void JoinServer::read_socket(Connection& connection) noexcept {
  alignas(8) std::byte packet[sizeof(join::Explained)];
  static_assert(sizeof packet >= sizeof(join::Request));
  // A connection that is closed meanwhile is read no further.
  while (connection.socket.is_open()) {
    if (join::brings_descriptors(connection.socket.number())) return cut_off(connection);
    const int64_t got = join::receive_packet(connection.socket.number(), packet, sizeof packet);
    if (got == -EAGAIN) return;
    if (got <= 0) {
      if (connection.phase == Phase::kConnected) return forget(connection);
      return lose(connection, JoinEvent::Kind::kDied,
                  error_while("being joined to the pool as %s", connection.process.text)
                      .set_answer("the connection was closed without leaving")
                      .set_cure("look why the process ended; on its own it calls leave() first"));
    }
    if (connection.phase == Phase::kConnected) {
      answer_request(connection, packet, static_cast<size_t>(got));
    } else {
      hear(connection, packet, static_cast<size_t>(got));
    }
  }
}

// Handles a packet of a process that was given its part.
void JoinServer::hear(Connection& connection, const void* packet, size_t bytes) noexcept {
  join::Head head = {.kind = join::PacketKind::kRefused};
  std::memcpy(static_cast<void*>(&head), packet, std::min(bytes, sizeof head));
  const bool is_joining = connection.phase == Phase::kHandedOver;
  BP_ASSERT(is_joining || connection.phase == Phase::kJoined);
  auto checked = join::check_head(packet, bytes, head.kind, sizeof head, sizeof(join::Explained));
  if (checked.ok() && head.kind == join::PacketKind::kReady && is_joining) {
    connection.phase = Phase::kJoined;
    BP_ASSERT(joining_count_ > 0);
    --joining_count_;
    roster_->set_alive(connection.instance);
    const join::Head alive = {.kind = join::PacketKind::kAlive};
    join::send_packet(connection.socket.number(), &alive, sizeof alive);
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
  cut_off(connection);
}

// Ends a connection that has sent nonsense, or descriptors.
void JoinServer::cut_off(Connection& connection) noexcept {
  Error error;
  if (connection.phase == Phase::kConnected) {
    error.set_doing("joining the pool").set_answer("descriptors came, which nobody asked for");
    return refuse(connection, error.set_cure("send none"));
  }
  error.set_doing("being joined to the pool as %s", connection.process.text);
  error.set_answer("the process said something that makes no sense");
  lose(connection, JoinEvent::Kind::kDied, error.set_cure("it is cut off; end it"));
}

// Declares a process with a part dead: the others see it as dead from now on.
void JoinServer::lose(Connection& connection, JoinEvent::Kind kind, const Error& error) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(connection.phase == Phase::kHandedOver || connection.phase == Phase::kJoined);
  if (connection.phase == Phase::kHandedOver) {
    BP_ASSERT(joining_count_ > 0);
    --joining_count_;
  }
  connection.phase = Phase::kGone;
  close_socket(connection);
  if (kind == JoinEvent::Kind::kLeft) roster_->set_stopped(connection.instance);
  roster_->set_dead(connection.instance);
  changed(connection, true);
  tell(connection, kind, error);
}

void JoinServer::process_ended(Connection& connection) noexcept {
  BP_ASSERT(!connection.has_ended && connection.phase >= Phase::kHandedOver);
  connection.has_ended = true;
  close_watched(connection.pidfd);
  // Before the others hear of its death; also for a process that was already dead in the table.
  roster_->set_stopped(connection.instance);
  // Its last packets are read first: it may have left in good order.
  if (connection.phase != Phase::kGone) read_socket(connection);
  if (connection.phase != Phase::kGone) {
    lose(connection, JoinEvent::Kind::kDied,
         error_while("being joined to the pool as %s", connection.process.text)
             .set_answer("the process ended")
             .set_cure("look why; on its own it leaves first"));
  }
  check_quiet(connection);
}

void JoinServer::check_quiet(Connection& connection) noexcept {
  if (!connection.has_ended || !connection.pipe_is_shut) return;
  BP_ASSERT(connection.phase == Phase::kGone);
  roster_->set_quiet(connection.instance);
  changed(connection, false);
  tell(connection, JoinEvent::Kind::kQuiet);
  ++quiet_count_;
  release_interval_ns_ = release_due_ns_ = 0;
  BP_DCHECK_SLOW(is_valid());
}

const char* JoinServer::log_source(uint32_t grant) const noexcept {
  return grant < roster_->grant_count() ? roster_->grant(grant).name.text
                                        : "processes that are not known";
}

void JoinServer::tell(const Connection& connection, JoinEvent::Kind kind,
                      const Error& error) noexcept {
  BP_ASSERT(is_own_thread());
  const uint32_t source = std::min(connection.grant, roster_->grant_count());
  const bool may_be_logged = log_limits_[source].try_pass(log_source(source));
  if (may_be_logged && error.answer[0] != '\0') log_error(error);
  if (!options_.on_event) return;
  JoinEvent event;
  event.kind = kind;
  event.process = connection.process;
  event.pid = connection.pid;
  event.error = error;
  event.may_be_logged = may_be_logged;
  if (kind != JoinEvent::Kind::kRefused) {
    const JoinRoster::Instance& instance = roster_->instance(connection.instance);
    event.group = instance.group;
    event.member = instance.members[0];
    event.member_count = instance.member_count;
    event.is_trusted = roster_->grant_of(instance).is_trusted;
  }
  options_.on_event(event);
}

// Frees the connection's place for another one.
void JoinServer::forget(Connection& connection) noexcept {
  BP_ASSERT(connection.phase == Phase::kConnected ||
            (connection.phase == Phase::kGone && connection.has_ended && connection.pipe_is_shut));
  if (connection.phase == Phase::kConnected) no_longer_silent(connection);
  close_socket(connection);
  close_watched(connection.pidfd);
  close_watched(connection.pipe);
  const uint32_t use = connection.use + 1;
  connection = Connection{};
  connection.use = use;
  unused_.push(connection);
  BP_DCHECK_SLOW(is_valid());
}

}  // namespace bedplate
