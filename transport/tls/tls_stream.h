// TlsStream: the TLS layer of one connection, between its socket and its user
// (transport/sockets/stream_layer.h). The bytes in the user's memory are plain text.
//
// The first receive includes the handshake; sends wait for its end.
//
// A handshake that takes longer than the environment allows is given up: the operations in flight
// end with -ETIMEDOUT, and nothing moves any more.
//
// Nothing completes from within receive(), send() and the like: they ask for run(), which
// TlsStreams, the poll source of all streams, calls. Received bytes lie in one planned buffer,
// bytes to send in another. The stream reads only while its user receives, or while a send needs
// input for a change of keys. So a peer that sends more must wait.
//
// Invariants, which is_valid() looks at around each call: 1. The socket receives into the input
// only when all of the input is used up. 2. The bytes being sent are part of the pending ones. 3. A
// closed stream has no socket, and no session of the library. 4. After an abort both directions
// have ended. 5. While the stream announces its end, no operation of its user is in flight. 6. Only
// a handshake that goes on has its time limited. Checked elsewhere: 7. After a failure no more
// plain text moves, and operations in flight end after the socket's operations. (read_some,
// write_some, end_operations)
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "platform/log_limit.h"
#include "platform/units.h"
#include "transport/loop/time_limit.h"
#include "transport/sockets/stream_layer.h"
#include "transport/sockets/stream_sockets.h"
#include "transport/tls/tls_counters.h"
#include "transport/tls/tls_session.h"

namespace bedplate {

// The parts that all streams of a server on one shard share. Outlives them.
struct TlsEnvironment {
  StreamSockets* sockets = nullptr;
  const TlsCredentials* credentials = nullptr;
  TlsCounters* counters = nullptr;
  LogLimit* log_limit = nullptr;
  const char* where = "";  // in the log: "[server]"
  // How long a handshake may take, from open() on; 0: the users of the streams see to that.
  uint64_t handshake_ns_max = 0;
};

class TlsStreams;

// Lies in planned memory. Threads: the shard of the sockets.
class TlsStream final : public StreamLayer, public Limited {
 public:
  // `all`: outlives this.
  explicit TlsStream(TlsStreams& all) noexcept;

  void open(StreamSocket& outer, std::span<const std::byte> early,
            void (*said_end)(void* context) noexcept, void* context) noexcept override;
  bool is_open() const noexcept { return outer_ != nullptr; }
  void receive() noexcept override;
  void send() noexcept override;
  void end_receive() noexcept override;
  void abort() noexcept override { abort_with(-ECONNABORTED); }
  bool say_end() noexcept override;
  bool is_certified() const noexcept override;
  bool is_in_handshake() const noexcept override;
  uint64_t taken_ns() const noexcept override { return inner_.seen_since_ns; }
  void close() noexcept override;

  // Goes on, after one of the above has asked for it. Threads and callers: TlsStreams alone.
  void run() noexcept;
  // The handshake has taken too long. Threads and callers: TlsStreams alone.
  void handshake_overdue() noexcept;

  bool is_valid() const noexcept;

  TlsStream* next_woken = nullptr;  // TlsStreams's

 private:
  static constexpr size_t kBufferBytes = 64 * kKiB;
  static_assert(kBufferBytes >= TlsSession::kBufferMinBytes);
  static_assert(kBufferBytes >= kEarlyBytesMax);

  static void received(void* self, int64_t result) noexcept;
  static void sent(void* self, int64_t result) noexcept;
  void wake() noexcept;
  void abort_with(int64_t result) noexcept;
  void wake_if_it_ends() noexcept;
  void advance_all() noexcept;

  void shake_hands() noexcept;
  void read_some() noexcept;
  void write_some() noexcept;
  void move_bytes() noexcept;
  void end_operations() noexcept;
  void failed() noexcept;
  static void finish(SocketOperation& operation, int64_t result) noexcept;
  static bool has_pieces(SocketOperation& operation) noexcept;
  bool is_own_thread() const noexcept { return environment_.sockets->loop().is_own_thread(); }
  bool is_moving_valid() const noexcept;
  bool is_in_flight() const noexcept {
    return inner_.receive.is_in_flight || inner_.send.is_in_flight;
  }
  // Whether the user's receive is to end once all that has come is read.
  bool is_receive_ending() const noexcept {
    return outer_->receive.is_in_flight && outer_->receive.is_ending;
  }

  TlsStreams& all_;
  const TlsEnvironment& environment_;
  StreamSocket* outer_ = nullptr;
  StreamSocket inner_;  // the attached socket
  void (*said_end_)(void* context) noexcept = nullptr;
  void* context_ = nullptr;
  bool is_attached_ = false;
  bool has_heard_ = false;  // any byte has come
  bool is_woken_ = false;   // in the list of TlsStreams; also after a close
  bool is_asked_ = false;   // run() has something to do
  bool is_aborted_ = false;
  bool has_said_end_ = false;
  bool has_all_ = false;     // end_receive(): all that has come was received
  bool is_deaf_ = false;     // a send has failed: nothing reaches the peer any more
  int64_t receive_end_ = 1;  // the result of all further receives; 1: the bytes that they move
  int64_t send_end_ = 1;     // the same for sends
  iovec receive_piece_;
  iovec send_piece_;
  TlsSession session_;
  std::byte input_[kBufferBytes];
  std::byte output_[kBufferBytes];
};

}  // namespace bedplate
