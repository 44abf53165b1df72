#include "apps/tls/tls_connection.h"

#include <deque>
#include <utility>

#include "platform/assert.h"
#include "transport/tls/tls_failures.h"
#include "transport/tls/tls_streams.h"

namespace bedplate {

bool TlsConnection::is_valid() const noexcept {
  if (!session_.is_begun()) return true;
  return session_.is_valid() && (is_over_ || session_.failure() == TlsFailure::kNone);
}

void TlsConnection::open(int fd) noexcept {
  BP_ASSERT(!session_.is_begun());
  has_heard_ = has_peer_ended_ = is_over_ = false;
  fd_ = fd;
  session_.begin(environment_.credentials, input_, output_);
  inner_.open(fd);
  if (session_.failure() != TlsFailure::kNone) fail();
}

void TlsConnection::closed() noexcept {
  BP_ASSERT(session_.is_begun());
  if (has_heard_ && !is_over_ && !session_.is_established()) counters_.failed_gone.add(1);
  session_.end();
  inner_.closed();
}

std::span<char> TlsConnection::room() noexcept {
  if (is_over_) return {};
  const std::span<std::byte> room = session_.input_room();
  return {reinterpret_cast<char*>(room.data()), room.size()};
}

void TlsConnection::received(size_t bytes) noexcept {
  has_heard_ = true;
  session_.arrived(bytes);
  advance();
}

std::string_view TlsConnection::output() const noexcept {
  const std::span<const std::byte> pending = session_.pending();
  return {reinterpret_cast<const char*>(pending.data()), pending.size()};
}

void TlsConnection::sent(size_t bytes) noexcept {
  session_.sent(bytes);
  advance();
}

// A handshake has the same time limit as a request. An answer is complete only after it was sent.
bool TlsConnection::is_in_request() const noexcept {
  if (is_over_ || !session_.pending().empty()) return false;
  return session_.is_established() ? inner_.is_in_request() : has_heard_;
}

void TlsConnection::time_out() noexcept {
  BP_DCHECK(is_in_request());
  if (!session_.is_established()) {
    counters_.failed_gone.add(1);
    is_over_ = true;
    return;
  }
  inner_.time_out();
  advance();
}

bool TlsConnection::is_waiting() const noexcept {
  return !is_over_ && session_.is_established() && session_.pending().empty() &&
         inner_.is_waiting();
}

void TlsConnection::look(uint64_t now_ns) noexcept {
  BP_DCHECK(is_waiting());
  inner_.look(now_ns);
  advance();
}

// Does all that can be done now.
void TlsConnection::advance() noexcept {
  BP_KEEPS_VALID(*this);
  if (is_over_ || !shake_hands()) return;
  bool has_moved = true;
  while (has_moved && !is_over_) {
    has_moved = say();
    has_moved |= hear();
  }
  const bool has_said_all = inner_.output().empty() && session_.pending().empty();
  const bool has_ended = inner_.is_over() || (has_peer_ended_ && !inner_.is_waiting());
  if (is_over_ || !has_said_all || !has_ended) return;
  session_.close_notify();
  is_over_ = true;
}

// Returns whether the handshake is done.
bool TlsConnection::shake_hands() noexcept {
  if (session_.is_established()) return true;
  const TlsSession::Outcome outcome = session_.handshake();
  if (outcome == TlsSession::Outcome::kFailed) fail();
  if (outcome != TlsSession::Outcome::kDone) return false;
  counters_.handshakes.add(1);
  if (session_.has_certificate()) inner_.peer_is_certified();
  return true;
}

// hear() and say() return whether any bytes moved.
bool TlsConnection::hear() noexcept {
  BP_DCHECK(session_.is_established());
  const std::span<char> room = inner_.room();
  if (is_over_ || has_peer_ended_ || room.empty()) return false;
  const TlsSession::Moved moved = session_.read(std::as_writable_bytes(room));
  counters_.read_bytes.add(moved.bytes);
  if (moved.bytes > 0) inner_.received(moved.bytes);
  if (moved.outcome == TlsSession::Outcome::kEnded) has_peer_ended_ = true;
  if (moved.outcome == TlsSession::Outcome::kFailed) fail();
  return moved.bytes > 0;
}

bool TlsConnection::say() noexcept {
  BP_DCHECK(session_.is_established());
  const std::string_view text = inner_.output();
  if (is_over_ || text.empty()) return false;
  const TlsSession::Moved moved = session_.write(std::as_bytes(std::span(text)));
  counters_.written_bytes.add(moved.bytes);
  if (moved.bytes > 0) inner_.sent(moved.bytes);
  if (moved.outcome == TlsSession::Outcome::kFailed) fail();
  return moved.bytes > 0;
}

void TlsConnection::fail() noexcept {
  BP_DCHECK(session_.failure() != TlsFailure::kNone);
  is_over_ = true;
  tell_tls_failure(session_, fd_, &counters_, &environment_.log_limit, environment_.where);
}

namespace {

class OpenSslServer final : public TlsServer {
 public:
  OpenSslServer(std::string where, std::string heap_owner) noexcept
      : where_(std::move(where)),
        heap_owner_(std::move(heap_owner)),
        environment_{.where = where_.c_str(), .credentials = TlsCredentials(heap_owner_.c_str())} {}

  bool load(const TlsFiles& files, std::vector<Error>* problems) override {
    return environment_.credentials.load(files, environment_.where, problems);
  }
  std::unique_ptr<ConnectionSession> wrap(ConnectionSession& inner,
                                          TlsCounters& counters) override {
    return std::make_unique<TlsConnection>(environment_, inner, counters);
  }
  std::unique_ptr<StreamLayers> make_layers(const TlsLayersOptions& options) override {
    const TlsEnvironment environment = {.sockets = options.sockets,
                                        .credentials = &environment_.credentials,
                                        .counters = options.counters,
                                        .log_limit = &log_limits_.emplace_back(10),
                                        .where = where_.c_str()};
    return std::make_unique<TlsStreams>(environment, options.memory, options.local,
                                        options.elsewhere);
  }

 private:
  const std::string where_;
  const std::string heap_owner_;
  TlsConnectionEnvironment environment_;
  std::deque<LogLimit> log_limits_;  // one for each shard
};

}  // namespace
}  // namespace bedplate

extern "C" const bedplate::TlsPart bedplate_tls_part;
const bedplate::TlsPart bedplate_tls_part = {
    [](std::string where, std::string heap_owner) -> std::unique_ptr<bedplate::TlsServer> {
      return std::make_unique<bedplate::OpenSslServer>(std::move(where), std::move(heap_owner));
    },
    sizeof(bedplate::TlsConnection)};
