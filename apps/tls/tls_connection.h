// One connection with TLS, without its socket: decrypts received bytes for an inner session, which
// knows nothing of TLS, and encrypts that session's output.
//
// Its memory is two buffers; the library's allocations are charged to the owner of the credentials.
// The thread of the connections computes the handshake, in about a millisecond. From its first byte
// on the client has the time of a request for the handshake (ConnectionThread). A failure is
// counted and logged, and ends the connection, with a TLS alert if there is one for it. A client
// that leaves or is late during the handshake is only counted.
//
// Invariants: 1. `inner_` reads and writes nothing before the handshake is done. (hear, say) 2. A
// connection with a failed session is over: it sends only pending bytes. (is_valid)
#pragma once

#include <cstddef>

#include "apps/services/tls_part.h"
#include "platform/log_limit.h"
#include "platform/units.h"
#include "transport/tls/tls_credentials.h"
#include "transport/tls/tls_session.h"

namespace bedplate {

// State that all connections of a server share.
struct TlsConnectionEnvironment {
  const char* where = "";  // in the log: "[server]"
  TlsCredentials credentials;
  LogLimit log_limit{10};
};

// Threads: see ConnectionSession.
class TlsConnection final : public ConnectionSession {
 public:
  // All arguments outlive this object.
  TlsConnection(TlsConnectionEnvironment& environment, ConnectionSession& inner,
                TlsCounters& counters) noexcept
      : environment_(environment), inner_(inner), counters_(counters) {}

  void open(int fd) noexcept override;
  void closed() noexcept override;
  std::span<char> room() noexcept override;
  void received(size_t bytes) noexcept override;
  std::string_view output() const noexcept override;
  void sent(size_t bytes) noexcept override;
  bool is_over() const noexcept override { return is_over_; }
  bool is_in_request() const noexcept override;
  void time_out() noexcept override;
  bool is_waiting() const noexcept override;
  void look(uint64_t now_ns) noexcept override;
  bool is_held() const noexcept override { return inner_.is_held(); }

  bool is_valid() const noexcept;

 private:
  static constexpr size_t kBufferBytes = 64 * kKiB;
  static_assert(kBufferBytes >= TlsSession::kBufferMinBytes);

  void advance() noexcept;
  bool shake_hands() noexcept;
  bool hear() noexcept;
  bool say() noexcept;
  void fail() noexcept;

  TlsConnectionEnvironment& environment_;
  ConnectionSession& inner_;
  TlsCounters& counters_;
  TlsSession session_;
  int fd_ = -1;                  // for the log
  bool has_heard_ = false;       // any byte was received
  bool has_peer_ended_ = false;  // the client has closed its side
  bool is_over_ = false;
  std::byte input_[kBufferBytes];
  std::byte output_[kBufferBytes];
};

}  // namespace bedplate
