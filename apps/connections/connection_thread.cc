#include "apps/connections/connection_thread.h"

#include <algorithm>
#include <cerrno>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {
namespace {

constexpr uint64_t kSlowNs = 10 * kNsPerSecond;   // the most for a request, and for an answer
constexpr uint64_t kIdleNs = 120 * kNsPerSecond;  // between requests
constexpr uint64_t kLingerNs = kNsPerSecond;
constexpr uint64_t kNoDescriptorNs = kNsPerSecond;
constexpr uint64_t kLineAgainNs = kNsPerSecond;
constexpr int kLookMs = 500;         // the longest delay until a slow connection is found
constexpr size_t kSaidBytes = 1024;  // for a client that gets no slot

bool would_block() noexcept { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Result<void> ConnectionThread::create(const Options& options, std::span<const Fd> listeners,
                                      std::span<ConnectionSession* const> sessions) {
  BP_DCHECK(connections_.empty() && !sessions.empty() && options.counters != nullptr);
  BP_DCHECK(options.too_many != nullptr);
  options_ = options;
  asker_ = current_heap_owner();
  listeners_ = listeners;
  connections_ = std::vector<Connection>(sessions.size());
  for (size_t i = 0; i < sessions.size(); ++i) connections_[i].session = sessions[i];
  polled_.resize(1 + listeners.size() + kLeavingMax + sessions.size());
  for (const Fd& listener : listeners) set_blocking(listener.number(), false);
  wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.is_open()) {
    return error_from_errno("creating the descriptor that wakes %s", options_.name)
        .set_cure("raise the limit of open files: ulimit -n");
  }
  return thread_.start(
      options_.name, [](void* self) noexcept { static_cast<ConnectionThread*>(self)->run(); },
      this);
}

void ConnectionThread::wake() noexcept {
  BP_DCHECK(wake_.is_open());
  const uint64_t one = 1;
  // The write fails only if the counter is full: then a wake-up is pending already.
  [[maybe_unused]] const ssize_t written = write(wake_.number(), &one, sizeof one);
}

void ConnectionThread::begin() noexcept {
  BP_DCHECK(!is_begun_.load(std::memory_order_relaxed));
  is_begun_.store(true, std::memory_order_release);  // pairs with wait()
  wake();
}

void ConnectionThread::stop() noexcept {
  if (!wake_.is_open()) return;
  must_end_.store(true, std::memory_order_release);  // pairs with run()
  wake();
  thread_.join();
  for (Connection& connection : connections_) {
    if (connection.fd.is_open()) close(&connection);
  }
  for (Leaving& leaving : leaving_) leaving.fd.close();
  if (line_fd_.is_open()) options_.line->close(&line_fd_);
  BP_ASSERT(open_count_ == 0);
  wake_.close();
}

bool ConnectionThread::is_valid() const noexcept {
  uint32_t open_count = 0;
  for (const Connection& one : connections_) {
    if (!one.fd.is_open()) continue;
    ++open_count;
    if (one.since_ns > now_ns_) return false;
    if (one.is_lingering && (!one.session->is_over() || !one.session->output().empty())) {
      return false;
    }
  }
  return open_count == open_count_;
}

void ConnectionThread::run() noexcept {
  const ThreadOwner::Hold hold(owner_);
  enter_heap_owner(asker_);
  while (!must_end_.load(std::memory_order_acquire)) wait();
}

// One round: waits for events, and handles all of them.
void ConnectionThread::wait() noexcept {
  BP_DCHECK(owner_.is_held_by_caller());
  BP_DCHECK_SLOW(is_valid());
  const bool is_begun = is_begun_.load(std::memory_order_acquire);
  const bool may_accept = is_begun && now_ns_ >= accept_again_ns_;
  if (is_begun && options_.line != nullptr) take_line();
  polled_[0] = {wake_.number(), POLLIN, 0};
  for (size_t i = 0; i < listeners_.size(); ++i) {
    polled_[1 + i] = {may_accept ? listeners_[i].number() : -1, POLLIN, 0};
  }
  const auto of_leaving = std::span(polled_).subspan(1 + listeners_.size(), kLeavingMax);
  for (size_t i = 0; i < kLeavingMax; ++i) of_leaving[i] = {leaving_[i].fd.number(), POLLIN, 0};
  const auto of_connections = std::span(polled_).subspan(1 + listeners_.size() + kLeavingMax);
  for (size_t i = 0; i < connections_.size(); ++i) {
    const Connection& one = connections_[i];
    const bool has_output = one.fd.is_open() && !one.session->output().empty();
    const bool is_waiting = one.fd.is_open() && one.session->is_waiting();
    of_connections[i] = {is_waiting ? -1 : one.fd.number(),
                         static_cast<short>(has_output ? POLLOUT : POLLIN), 0};
  }
  const bool has_no_line = options_.line != nullptr && line_ == nullptr;
  const bool must_look =
      open_count_ > 0 || has_leaving() || (is_begun && (!may_accept || has_no_line));
  const int ready = poll(polled_.data(), polled_.size(), must_look ? kLookMs : -1);
  now_ns_ = monotonic_ns();
  if (ready > 0 && polled_[0].revents != 0) {
    uint64_t told = 0;
    [[maybe_unused]] const ssize_t got = read(wake_.number(), &told, sizeof told);
  }
  for (size_t i = 0; i < kLeavingMax; ++i) {
    if (leaving_[i].fd.is_open()) hear_out(&leaving_[i], ready > 0 && of_leaving[i].revents != 0);
  }
  for (size_t i = 0; i < connections_.size(); ++i) {
    Connection& one = connections_[i];
    if (ready > 0 && of_connections[i].revents != 0) serve(&one, of_connections[i].revents);
    if (one.fd.is_open() && one.session->is_waiting()) look(&one);
    if (one.fd.is_open()) end_slow(&one);
  }
  BP_DCHECK_SLOW(is_valid());
  // Accepts last: slots of ended connections are free by now, and no event of an old connection can
  // be taken for one of a new connection.
  for (size_t i = 0; ready > 0 && i < listeners_.size(); ++i) {
    if (polled_[1 + i].revents != 0) accept_from(listeners_[i].number());
  }
  options_.counters->connections.set(client_count());
  options_.counters->connections_peak.raise(client_count());
}

void ConnectionThread::accept_from(int listener) noexcept {
  for (size_t i = 0; i < connections_.size(); ++i) {
    Fd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.is_open()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        accept_again_ns_ = now_ns_ + kNoDescriptorNs;
      }
      return;
    }
    if (is_refused(&fd)) continue;
    Connection* slot = slot_for_one(false);
    if (slot == nullptr) {
      options_.counters->turned_away.add(1);
      char room[kSaidBytes];
      let_go(std::move(fd), options_.too_many(options_.context, std::span(room)));
      continue;
    }
    BP_DCHECK(!slot->fd.is_open() && open_count_ < connections_.size());
    BP_DCHECK(!slot->session->is_held());
    const int without_delay = 1;  // a Unix socket has no such option
    setsockopt(fd.number(), IPPROTO_TCP, TCP_NODELAY, &without_delay, sizeof without_delay);
    begin_connection(slot, std::move(fd));
  }
}

void ConnectionThread::begin_connection(Connection* slot, Fd fd) noexcept {
  slot->fd = std::move(fd);
  slot->session->open(slot->fd.number());
  slot->since_ns = now_ns_;
  slot->is_lingering = false;
  ++open_count_;
}

// Gives the line a slot if it has none: at first, after it broke, and after its session ended.
void ConnectionThread::take_line() noexcept {
  if (line_ != nullptr || now_ns_ < line_again_ns_) return;
  if (!line_fd_.is_open()) line_fd_ = options_.line->open();
  Connection* const slot = line_fd_.is_open() ? slot_for_one(true) : nullptr;
  if (slot == nullptr) {
    line_again_ns_ = now_ns_ + kLineAgainNs;
    return;
  }
  line_ = slot;
  begin_connection(slot, std::move(line_fd_));
  slot->session->begin_line();
}

// Keeps the line's descriptor open for another session.
void ConnectionThread::leave_line() noexcept {
  line_fd_ = std::move(line_->fd);
  line_->session->closed();
  line_ = nullptr;
  --open_count_;
}

bool ConnectionThread::is_refused(Fd* fd) noexcept {
  if (options_.refusal == nullptr) return false;
  char room[kSaidBytes];
  const std::string_view refusal =
      options_.refusal(options_.context, fd->number(), std::span(room));
  if (refusal.empty()) return false;
  let_go(std::move(*fd), refusal);
  return true;
}

bool ConnectionThread::has_leaving() const noexcept {
  return std::any_of(leaving_.begin(), leaving_.end(),
                     [](const Leaving& each) { return each.fd.is_open(); });
}

// Turns a client away, with a text or without. If a connection is closed while its client still
// sends, the kernel resets it and the text is lost; so it is kept open for a moment.
void ConnectionThread::let_go(Fd fd, std::string_view words) noexcept {
  BP_DCHECK(fd.is_open());
  if (words.empty()) return;
  [[maybe_unused]] const ssize_t sent =
      ::send(fd.number(), words.data(), words.size(), MSG_NOSIGNAL);
  shutdown(fd.number(), SHUT_WR);
  Leaving* slot = &leaving_[0];
  for (Leaving& each : leaving_) {
    if (!slot->fd.is_open()) break;
    if (!each.fd.is_open() || each.since_ns < slot->since_ns) slot = &each;
  }
  slot->fd = std::move(fd);
  slot->since_ns = now_ns_;
}

void ConnectionThread::hear_out(Leaving* leaving, bool is_ready) noexcept {
  char thrown_away[4096];
  ssize_t got = 1;
  if (is_ready) got = recv(leaving->fd.number(), thrown_away, sizeof thrown_away, 0);
  const bool is_gone = got == 0 || (got < 0 && !would_block());
  if (is_gone || now_ns_ - leaving->since_ns >= kLingerNs) leaving->fd.close();
}

void ConnectionThread::look(Connection* connection) noexcept {
  BP_DCHECK(connection->session->is_waiting());
  connection->session->look(now_ns_);
  connection->since_ns = now_ns_;
  const ConnectionSession& session = *connection->session;
  if (!session.output().empty() || session.is_over()) send(connection);
}

// Returns a free slot, or the slot of the connection that has been idle longest, which it closes.
ConnectionThread::Connection* ConnectionThread::slot_for_one(bool is_for_line) noexcept {
  const size_t client_count_max = connections_.size() - (options_.line != nullptr ? 1 : 0);
  const bool may_take_free = is_for_line || client_count() < client_count_max;
  Connection* silent = nullptr;
  for (Connection& one : connections_) {
    if (one.session->is_held() || &one == line_) continue;
    if (!one.fd.is_open() && may_take_free) return &one;
    if (!one.fd.is_open()) continue;
    if (one.is_busy() || (silent != nullptr && silent->since_ns <= one.since_ns)) continue;
    silent = &one;
  }
  if (silent == nullptr) return nullptr;
  options_.counters->turned_away.add(1);
  close(silent);
  return silent;
}

void ConnectionThread::serve(Connection* connection, short events) noexcept {
  BP_DCHECK(connection->fd.is_open());
  BP_DCHECK(!connection->session->is_waiting());  // a waiting connection is not polled
  // Reads before it looks at errors: a client that has shut down its side may still read, and a
  // client that has reset may have sent a reason before.
  if ((events & (POLLIN | POLLHUP)) != 0 && !receive(connection)) return;
  if ((events & (POLLERR | POLLNVAL)) != 0) {
    lose(connection, EIO);
    return;
  }
  const ConnectionSession& session = *connection->session;
  if (!session.output().empty() || (session.is_over() && !connection->is_lingering)) {
    send(connection);
  }
}

// Returns false if the connection is closed.
bool ConnectionThread::receive(Connection* connection) noexcept {
  BP_DCHECK(connection->fd.is_open());
  char thrown_away[4096];
  const bool was_in_request = connection->session->is_in_request();
  std::span<char> room = connection->session->room();
  if (connection->is_lingering) room = thrown_away;
  if (room.empty()) return true;
  const int fd = connection->fd.number();
  const ssize_t got = connection == line_ ? read(fd, room.data(), room.size())
                                          : recv(fd, room.data(), room.size(), 0);
  if (got < 0 && would_block()) return true;
  if (got <= 0) {
    lose(connection, got < 0 ? errno : 0);
    return false;
  }
  if (connection->is_lingering) return true;
  // The time of a request counts from its first byte, however slowly it arrives.
  if (!was_in_request) connection->since_ns = now_ns_;
  connection->session->received(static_cast<size_t>(got));
  return true;
}

bool ConnectionThread::send(Connection* connection) noexcept {
  BP_DCHECK(connection->fd.is_open());
  ConnectionSession& session = *connection->session;
  while (!session.output().empty()) {
    const std::string_view output = session.output();
    const int fd = connection->fd.number();
    const ssize_t sent = connection == line_
                             ? write(fd, output.data(), output.size())
                             : ::send(fd, output.data(), output.size(), MSG_NOSIGNAL);
    if (sent < 0 && would_block()) return true;
    if (sent < 0) {
      lose(connection, errno);
      return false;
    }
    options_.counters->sent_bytes.add(static_cast<uint64_t>(sent));
    connection->since_ns = now_ns_;
    session.sent(static_cast<size_t>(sent));
  }
  if (!session.is_over()) return true;
  if (connection == line_) {
    leave_line();
    return false;
  }
  // Shuts down instead of closing: a close with unread bytes makes the kernel discard the answer.
  shutdown(connection->fd.number(), SHUT_WR);
  connection->is_lingering = true;
  return true;
}

void ConnectionThread::end_slow(Connection* connection) noexcept {
  BP_DCHECK(connection->since_ns <= now_ns_);
  ConnectionSession& session = *connection->session;
  if (connection == line_ && !connection->is_busy()) return;
  const uint64_t patience_ns = connection->is_lingering ? kLingerNs
                               : connection->is_busy()  ? kSlowNs
                                                        : kIdleNs;
  if (now_ns_ - connection->since_ns < patience_ns) return;
  if (!connection->is_lingering) options_.counters->timeouts.add(1);
  if (!connection->is_lingering && session.is_in_request()) {
    session.time_out();
    connection->since_ns = now_ns_;
    send(connection);
    return;
  }
  if (connection == line_) {
    options_.line->drop_output(connection->fd.number());
    return leave_line();
  }
  close(connection);
}

// A client's connection has ended, or the line broke.
void ConnectionThread::lose(Connection* connection, int error_number) noexcept {
  if (connection == line_) options_.line->lost(error_number);
  close(connection);
}

void ConnectionThread::close(Connection* connection) noexcept {
  BP_ASSERT(owner_.is_caller());
  BP_ASSERT(connection->fd.is_open() && open_count_ > 0);
  if (connection == line_) {
    line_ = nullptr;
    line_again_ns_ = now_ns_ + kLineAgainNs;
    options_.line->close(&connection->fd);
  }
  connection->fd.close();
  connection->session->closed();
  --open_count_;
}

}  // namespace bedplate
