#include "pinned_pool/join/join_connections.h"

#include <algorithm>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

template <typename Connection>
auto& descriptor_of(Connection& connection, JoinConnections::Watched watched) noexcept {
  switch (watched) {
    case JoinConnections::Watched::kProcess: return connection.pidfd;
    case JoinConnections::Watched::kPipe: return connection.pipe;
    case JoinConnections::Watched::kSocket: break;
  }
  return connection.socket;
}

}  // namespace

// One slot more than the limit: a new connection gets its slot before another one is dropped.
JoinConnections::JoinConnections(JoinWatch& watch, ClosingThread& closing, uint32_t process_count)
    : watch_(watch), closing_(closing), connections_(process_count + kSilentCountMax + 1) {
  for (size_t i = connections_.size(); i > 0; --i) unused_.push(connections_[i - 1]);
  silent_.reserve(kSilentCountMax + 1);
}

uint32_t JoinConnections::index_of(const JoinConnection& connection) const noexcept {
  BP_DCHECK(&connection >= connections_.data() &&
            &connection < connections_.data() + connections_.size());
  return static_cast<uint32_t>(&connection - connections_.data());
}

JoinConnection* JoinConnections::begin(Fd&& socket, uint64_t deadline_ns) noexcept {
  BP_ASSERT(!unused_.is_empty());
  JoinConnection& connection = *unused_.first();
  connection.socket = std::move(socket);
  ucred peer = {};
  socklen_t bytes = sizeof peer;
  if (getsockopt(connection.socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 ||
      !watch(connection, Watched::kSocket)) {
    closing_.close(connection.socket);
    return nullptr;
  }
  unused_.pop();
  connection.phase = Phase::kConnected;
  connection.pid = peer.pid;
  connection.uid = peer.uid;
  connection.deadline_ns = deadline_ns;
  silent_.push_back(index_of(connection));
  BP_ASSERT(silent_.size() <= kSilentCountMax + 1);  // the reserved capacity
  BP_DCHECK_SLOW(is_valid());
  return &connection;
}

void JoinConnections::forget(JoinConnection& connection) noexcept {
  BP_ASSERT(connection.phase == Phase::kConnected ||
            (connection.phase == Phase::kGone && connection.is_quiet()));
  if (connection.phase == Phase::kConnected) end_silence(connection);
  for (const Watched watched : {Watched::kSocket, Watched::kProcess, Watched::kPipe}) {
    close(connection, watched);
  }
  const uint32_t use = connection.use + 1;
  connection = JoinConnection{};
  connection.use = use;
  unused_.push(connection);
  BP_DCHECK_SLOW(is_valid());
}

void JoinConnections::close_all() noexcept {
  for (JoinConnection& connection : connections_) connection = JoinConnection{};
}

bool JoinConnections::watch(const JoinConnection& connection, Watched watched) noexcept {
  const uint64_t index = index_of(connection);
  const uint32_t events = watched == Watched::kPipe ? 0u : EPOLLIN;  // 0: only the hang-up
  return watch_.add(descriptor_of(connection, watched), events,
                    uint64_t{connection.use} << 32 | index << 2 | static_cast<uint64_t>(watched));
}

void JoinConnections::close(JoinConnection& connection, Watched watched) noexcept {
  Fd& descriptor = descriptor_of(connection, watched);
  watch_.remove(descriptor);
  if (watched == Watched::kSocket) return closing_.close(descriptor);
  descriptor.close();
}

JoinConnection* JoinConnections::find(uint64_t event_data) noexcept {
  BP_ASSERT(static_cast<uint32_t>(event_data) >> 2 < connections_.size());
  JoinConnection& connection = connections_[static_cast<uint32_t>(event_data) >> 2];
  return connection.use == event_data >> 32 ? &connection : nullptr;
}

JoinConnection* JoinConnections::oldest_silent() noexcept {
  return silent_.empty() ? nullptr : &connections_[silent_.front()];
}

uint64_t JoinConnections::silent_due_ns() const noexcept {
  return silent_.empty() ? UINT64_MAX : connections_[silent_.front()].deadline_ns;
}

JoinConnection& JoinConnections::choose_to_drop(ptrdiff_t* its_user_has) noexcept {
  const auto count_of = [this](uint32_t index) {
    return std::count_if(silent_.begin(), silent_.end(), [&](uint32_t other) {
      return connections_[other].uid == connections_[index].uid;
    });
  };
  uint32_t leaves = silent_.back();
  auto most = count_of(leaves);
  if (most > 1)
    leaves = *std::find_if(silent_.begin(), silent_.end(), [&](uint32_t other) {
      return connections_[other].uid == connections_[leaves].uid;
    });
  for (const uint32_t index : silent_) {
    const auto count = count_of(index);
    if (count <= most) continue;
    most = count;
    leaves = index;
  }
  BP_ASSERT(connections_[leaves].phase == Phase::kConnected);
  *its_user_has = most;
  return connections_[leaves];
}

void JoinConnections::end_silence(const JoinConnection& connection) noexcept {
  const auto its = std::find(silent_.begin(), silent_.end(), index_of(connection));
  BP_ASSERT(its != silent_.end());
  silent_.erase(its);
}

bool JoinConnections::are_silent_ones_valid() const noexcept {
  uint64_t deadline_ns = 0;
  for (const uint32_t index : silent_) {
    const JoinConnection& connection = connections_[index];
    if (connection.phase != Phase::kConnected || connection.deadline_ns < deadline_ns ||
        std::count(silent_.begin(), silent_.end(), index) != 1) {
      return false;
    }
    deadline_ns = connection.deadline_ns;
  }
  return true;
}

bool JoinConnections::is_valid() const noexcept {
  size_t unused_count = 0;
  size_t silent_count = 0;
  for (const JoinConnection& connection : connections_) {
    const Phase phase = connection.phase;
    unused_count += phase == Phase::kUnused ? 1 : 0;
    silent_count += phase == Phase::kConnected ? 1 : 0;
    const bool has_socket = phase != Phase::kUnused && phase != Phase::kGone;
    if (connection.socket.is_open() != has_socket) return false;
    if (connection.has_part()) continue;
    if (connection.has_ended || connection.pipe_is_shut || connection.pidfd.is_open() ||
        connection.pipe.is_open()) {
      return false;
    }
  }
  return silent_.size() == silent_count && are_silent_ones_valid() &&
         unused_.has_just(unused_count, [](const JoinConnection& connection) {
           return connection.phase == Phase::kUnused;
         });
}

}  // namespace bedplate
