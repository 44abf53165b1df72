#include "pinned_pool/join/join_server.h"

#include <algorithm>
#include <cerrno>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pinned_pool/join/join_socket.h"
#include "platform/clock.h"
#include "platform/forbidden_calls.h"

namespace bedplate {
namespace {

// Deaths are told at once. New members and free places are told within this time, so that a
// thousand processes that join together do not wake one another a million times.
constexpr uint64_t kTellWithinNs = 20 * kNsPerMs;
// The interval between two checks if quiet members are forgotten.
constexpr uint64_t kReleaseIntervalMinNs = kNsPerMs;
constexpr uint64_t kReleaseIntervalMaxNs = 64 * kNsPerMs;
// The most time that a turn spends on renewing parts.
constexpr uint64_t kReleaseTurnNs = 2 * kNsPerMs;

}  // namespace

const char* to_text(JoinEvent::Kind kind) noexcept {
  switch (kind) {
    case JoinEvent::Kind::kJoined: return "joined";
    case JoinEvent::Kind::kRefused: return "was refused";
    case JoinEvent::Kind::kFailed: return "could not join";
    case JoinEvent::Kind::kLeft: return "left";
    case JoinEvent::Kind::kDied: return "died";
    case JoinEvent::Kind::kQuiet: return "is quiet";
    case JoinEvent::Kind::kFreed: return "is forgotten";
  }
  return "?";
}

JoinServer::JoinServer(JoinServerOptions&& options) noexcept : options_(std::move(options)) {}

JoinServer::~JoinServer() { stop(); }

Result<std::unique_ptr<JoinServer>> JoinServer::create(JoinServerOptions options) {
  std::unique_ptr<JoinServer> server(new JoinServer(std::move(options)));
  JoinServerOptions& given = server->options_;
  auto roster = JoinRoster::create(
      {given.pool, given.pool_id, std::move(given.groups), std::move(given.grants)});
  if (!roster.ok()) return roster.error();
  server->roster_ = roster.take();
  // One more: a newcomer has a place before another connection has to go.
  server->connections_.resize(server->roster_->instance_count() + kSilentCountMax + 1);
  for (size_t i = server->connections_.size(); i > 0; --i) {
    server->unused_.push(server->connections_[i - 1]);
  }
  server->silent_.reserve(kSilentCountMax + 1);
  server->events_.resize(3 * server->connections_.size() + 2);
  server->wake_due_ns_.resize(server->roster_->group_count());
  for (uint32_t i = 0; i < server->roster_->grant_count(); ++i) {
    const uint32_t lines = kLinesOfGrant + kLinesOfProcess * server->roster_->grant(i).max_count;
    server->log_limits_.emplace_back(lines, given.log_period_ns);
  }
  server->log_limits_.emplace_back(kLinesOfStrangers, given.log_period_ns);
  BP_TRY(allow_open_files(open_files_min(server->roster_->instance_count())));
  BP_TRY(server->take_listener());
  BP_TRY(server->open_epoll());
  BP_DCHECK_SLOW(server->is_valid());
  return server;
}

Result<void> JoinServer::take_listener() noexcept {
  if (options_.listener != nullptr) {
    listener_ = options_.listener->take();
    // Listens once more: joiners see the user of the last listen() as the socket's owner.
    if (listen(listener_.number(), SOMAXCONN) == 0) return {};
    return error_from_errno("listening for those who join");
  }
  BP_TRY_ASSIGN(listener_, listen_for_joiners(options_.socket_path.c_str()));
  return {};
}

// Opens the epoll that the thread waits at.
Result<void> JoinServer::open_epoll() noexcept {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  stop_event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = kStopMark}};
  // Waits once, too: if a sandbox forbids that, the thread could later only stop.
  if (epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, stop_event_.number(), &event) == 0 &&
      epoll_wait(epoll_.number(), &event, 1, 0) == 0) {
    return {};
  }
  Error error = error_from_errno("opening an epoll for those who join");
  if (says_forbidden(errno)) {
    return set_cure_of_forbidden(&error, "eventfd2, epoll_create1, epoll_ctl or epoll_wait");
  }
  return error.set_cure("raise the limit of open files (ulimit -n)");
}

uint32_t JoinServer::add_own_member(uint32_t group, const MemberName& name) noexcept {
  BP_ASSERT(!is_running_);
  return roster_->add_own_member(group, name);
}

Result<void> JoinServer::start() noexcept {
  BP_ASSERT(!is_running_);
  BP_TRY(closing_.start());
  BP_TRY(thread_.start(
      "control", [](void* self) noexcept { static_cast<JoinServer*>(self)->run(); }, this));
  is_running_ = true;
  has_tried_life_.wait(false, std::memory_order_acquire);
  return life_.ok() ? Result<void>() : life_.error();
}

Result<void> JoinServer::serve() noexcept {
  BP_ASSERT(is_running_);
  if (watch_listener()) return {};
  return error_from_errno("watching the socket for those who join")
      .set_cure("raise the limit of watched files: sysctl fs.epoll.max_user_watches");
}

bool JoinServer::watch_listener() noexcept {
  epoll_event on_connect = {.events = EPOLLIN, .data = {.u64 = kListenerMark}};
  return epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, listener_.number(), &on_connect) == 0;
}

void JoinServer::stop() noexcept {
  BP_ASSERT(!control_.is_held_by_caller());  // it would wait for itself
  if (listener_.is_open()) unlink(options_.socket_path.c_str());
  if (!is_running_) return listener_.close();
  const uint64_t one = 1;
  BP_ASSERT(write(stop_event_.number(), &one, sizeof one) == sizeof one);
  thread_.join();
  is_running_ = false;
  for (Connection& connection : connections_) closing_.close(connection.socket);
  closing_.close(listener_);
  closing_.stop();
}

// Returns true if the connection's parts match its phase.
bool JoinServer::is_valid(const Connection& connection) const noexcept {
  using State = JoinRoster::Instance::State;
  const bool has_socket = connection.socket.is_open();
  if (connection.phase == Phase::kUnused || connection.phase == Phase::kConnected) {
    return has_socket == (connection.phase == Phase::kConnected) && !connection.has_ended &&
           !connection.pipe_is_shut && !connection.pidfd.is_open() && !connection.pipe.is_open();
  }
  if (connection.instance >= roster_->instance_count()) return false;
  const JoinRoster::Instance& its = roster_->instance(connection.instance);
  if (its.pid != static_cast<uint32_t>(connection.pid)) return false;
  if (has_socket != (connection.phase != Phase::kGone)) return false;
  if (connection.phase == Phase::kHandedOver) return its.state == State::kJoining;
  if (connection.phase == Phase::kJoined) return its.state == State::kAlive;
  if (its.state == State::kDead) return true;
  return (its.state == State::kQuiet || its.state == State::kRenewing) && connection.has_ended &&
         connection.pipe_is_shut;
}

bool JoinServer::is_valid() const noexcept {
  using State = JoinRoster::Instance::State;
  BP_ASSERT(is_own_thread());
  size_t counts[static_cast<size_t>(Phase::kGone) + 1] = {};
  for (const Connection& connection : connections_) {
    if (!is_valid(connection)) return false;
    ++counts[static_cast<size_t>(connection.phase)];
  }
  const auto count_of = [&](Phase phase) { return counts[static_cast<size_t>(phase)]; };
  if (!unused_.has_just(count_of(Phase::kUnused), [](const Connection& connection) {
        return connection.phase == Phase::kUnused;
      })) {
    return false;
  }
  uint64_t deadline_ns = 0;
  for (const uint32_t place : silent_) {
    const Connection& connection = connections_[place];
    if (connection.phase != Phase::kConnected || connection.deadline_ns < deadline_ns ||
        std::count(silent_.begin(), silent_.end(), place) != 1) {
      return false;
    }
    deadline_ns = connection.deadline_ns;
  }
  size_t taken_count = 0;
  uint32_t quiet_count = 0;
  for (uint32_t i = 0; i < roster_->instance_count(); ++i) {
    const State state = roster_->instance(i).state;
    taken_count += state != State::kFree ? 1 : 0;
    quiet_count += state == State::kQuiet || state == State::kRenewing ? 1 : 0;
  }
  return silent_.size() == count_of(Phase::kConnected) && quiet_count == quiet_count_ &&
         joining_count_ == count_of(Phase::kHandedOver) &&
         taken_count == connections_.size() - count_of(Phase::kUnused) - silent_.size();
}

void JoinServer::run() noexcept {
  const ThreadOwner::Hold hold(control_);
  uint32_t held_count = 0;
  while (life_.ok() && held_count < roster_->group_count()) {
    life_ = roster_->group(held_count).table->hold_owner_life();
    held_count += life_.ok() ? 1 : 0;
  }
  has_tried_life_.store(true, std::memory_order_release);
  has_tried_life_.notify_all();
  while (life_.ok() && !is_stopping_) turn();
  BP_DCHECK_SLOW(is_valid());
  for (uint32_t i = 0; i < held_count; ++i) {
    roster_->group(i).table->release_owner_life();
    roster_->group(i).keeper->wake_members();
  }
  for (Connection& connection : connections_) connection = Connection{};
}

void JoinServer::turn() noexcept {
  BP_KEEPS_VALID(*this);
  const int count = epoll_wait(epoll_.number(), events_.data(), static_cast<int>(events_.size()),
                               milliseconds_to_wait());
  BP_ASSERT(count >= 0 || errno == EINTR);
  BP_ASSERT(count <= static_cast<int>(events_.size()));
  const std::span<const epoll_event> events(events_.data(),
                                            static_cast<size_t>(std::max(count, 0)));
  for (const epoll_event& event : events) {
    if (event.data.u64 == kStopMark) is_stopping_ = true;
  }
  if (is_stopping_) return;
  for (const epoll_event& event : events) {
    if (event.data.u64 != kListenerMark && stranger_of(event.data.u64) == nullptr) {
      handle(event.data.u64);
    }
  }
  ring_doorbells();
  serve_strangers(events);
  check_deadlines();
  if (quiet_count_ > 0) release_parts();
  ring_doorbells();
}

int JoinServer::milliseconds_to_wait() const noexcept {
  if (is_renewing_ && quiet_count_ > 0) return 0;
  uint64_t due = UINT64_MAX;
  for (const uint64_t wake : wake_due_ns_) {
    if (wake != 0) due = std::min(due, wake);
  }
  if (quiet_count_ > 0) due = std::min(due, release_due_ns_);
  if (accept_again_ns_ != 0) due = std::min(due, accept_again_ns_);
  for (const LogLimit& limit : log_limits_) due = std::min(due, limit.due_ns());
  if (!silent_.empty()) due = std::min(due, connections_[silent_.front()].deadline_ns);
  const uint64_t now = monotonic_ns();
  // Deadlines are seconds long: checking twice a second is exact enough.
  if (joining_count_ > 0) due = std::min(due, now + kNsPerSecond / 2);
  if (due == UINT64_MAX) return -1;
  return due <= now ? 0 : static_cast<int>((due - now) / kNsPerMs + 1);
}

// The event's connection, if that has not sent its request yet; else nullptr.
JoinServer::Connection* JoinServer::stranger_of(uint64_t event_data) noexcept {
  if (event_data == kListenerMark) return nullptr;
  BP_ASSERT(static_cast<uint32_t>(event_data) >> 2 < connections_.size());
  Connection& connection = connections_[static_cast<uint32_t>(event_data) >> 2];
  const bool is_stranger =
      connection.use == event_data >> 32 && connection.phase == Phase::kConnected;
  return is_stranger ? &connection : nullptr;
}

void JoinServer::handle(uint64_t event_data) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(static_cast<uint32_t>(event_data) >> 2 < connections_.size());
  Connection& connection = connections_[static_cast<uint32_t>(event_data) >> 2];
  if (connection.use != event_data >> 32) return;  // an event of a former connection
  switch (static_cast<Watched>(event_data & 3)) {
    case Watched::kSocket: return read_socket(connection);
    case Watched::kProcess: return process_ended(connection);
    case Watched::kPipe:
      BP_ASSERT(!connection.pipe_is_shut && connection.pipe.is_open());
      connection.pipe_is_shut = true;
      close_watched(connection.pipe);
      return check_quiet(connection);
  }
}

void JoinServer::check_deadlines() noexcept {
  for (uint32_t i = 0; i < log_limits_.size(); ++i) {
    if (log_limits_[i].due_ns() != UINT64_MAX) log_limits_[i].lift(log_source(i));
  }
  if (silent_.empty() && joining_count_ == 0 && accept_again_ns_ == 0) return;
  const uint64_t now = monotonic_ns();
  drop_expired();
  for (Connection& connection : connections_) {
    if (joining_count_ == 0) break;
    if (connection.phase != Phase::kHandedOver || now < connection.deadline_ns) continue;
    lose(connection, JoinEvent::Kind::kFailed,
         error_while("joining the pool as %s", connection.process.text)
             .set_answer("it was given its part and did not say in time that it is ready")
             .set_cure("end it and start it again"));
  }
  if (accept_again_ns_ == 0 || now < accept_again_ns_) return;
  accept_again_ns_ = 0;
  watch_listener();
}

// Renews parts, piece by piece, in a short time for each turn; the parts take turns.
void JoinServer::release_parts() noexcept {
  BP_KEEPS_VALID(*this);
  const uint64_t now = monotonic_ns();
  if (!is_renewing_ && now < release_due_ns_) return;
  is_renewing_ = false;
  const auto count = static_cast<uint32_t>(connections_.size());
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t place = (release_from_ + i) % count;
    Connection& connection = connections_[place];
    if (!connection.has_ended || !connection.pipe_is_shut) continue;
    const JoinRoster::Release outcome = roster_->try_release(connection.instance);
    if (outcome == JoinRoster::Release::kNotYet) continue;
    is_renewing_ = true;
    if (outcome == JoinRoster::Release::kFree) {
      BP_ASSERT(quiet_count_ > 0);
      --quiet_count_;
      changed(connection, false);
      tell(connection, JoinEvent::Kind::kFreed);
      forget(connection);
    }
    if (monotonic_ns() - now < kReleaseTurnNs) continue;
    release_from_ = place + 1;
    break;
  }
  if (is_renewing_) return;
  release_interval_ns_ =
      std::clamp(2 * release_interval_ns_, kReleaseIntervalMinNs, kReleaseIntervalMaxNs);
  release_due_ns_ = now + release_interval_ns_;
}

void JoinServer::changed(const Connection& connection, bool is_urgent) noexcept {
  BP_ASSERT(is_own_thread());
  uint64_t& due = wake_due_ns_[roster_->instance(connection.instance).group];
  if (is_urgent) {
    due = 1;
  } else if (due == 0) {
    due = monotonic_ns() + kTellWithinNs;
  }
}

void JoinServer::ring_doorbells() noexcept {
  uint64_t now = 0;
  for (uint32_t i = 0; i < roster_->group_count(); ++i) {
    if (wake_due_ns_[i] == 0) continue;
    if (now == 0) now = monotonic_ns();
    if (now < wake_due_ns_[i]) continue;
    wake_due_ns_[i] = 0;
    roster_->group(i).keeper->wake_members();
  }
}

}  // namespace bedplate
