// TlsStream: the TLS layer of one connection, between its socket and its user.
//
// The user begins without TLS, on its own StreamSocket. open() takes the descriptor over; from then
// on receive() and send() replace those of StreamSockets, on the same operations of the same
// StreamSocket. They complete alike, but the bytes in the user's memory are plain text. So a
// connection without TLS pays nothing, and the user's code serves both. The first receive includes
// the handshake; sends wait for its end.
//
// Nothing completes from within receive(), send() or abort(): they request run(), by `wake`.
// Received bytes lie in one planned buffer, bytes to send in another. The stream reads only while
// its user receives, or while a send needs input for a change of keys. So a peer that sends more
// must wait.
//
// Invariants, which is_valid() looks at around each call: 1. The socket receives into the input
// only when all of the input is used up. 2. The bytes being sent are part of the pending ones. 3. A
// closed stream has no socket, and no session of the library. 4. After an abort both directions
// have ended. 5. While the stream announces its end, no operation of its user is in flight. Checked
// elsewhere: 6. After a failure no more plain text moves, and operations in flight end after the
// socket's operations. (read_some, write_some, end_operations)
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/log_limit.h"
#include "platform/units.h"
#include "transport/sockets/stream_sockets.h"
#include "transport/tls/tls_counters.h"
#include "transport/tls/tls_session.h"

namespace bedplate {

// The parts that all streams of a server share. Outlives them.
struct TlsEnvironment {
  StreamSockets* sockets = nullptr;
  const TlsCredentials* credentials = nullptr;
  TlsCounters* counters = nullptr;
  LogLimit* log_limit = nullptr;
  const char* where = "";  // in the log: "[server]"
};

// Lies in planned memory. Threads: the shard of the sockets.
class TlsStream {
 public:
  explicit TlsStream(TlsEnvironment& environment) noexcept;
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Takes over `outer`, which is attached, from the sockets; the functions below use its
  // operations. `wake(context)` requests a call of run() soon. Requires: !is_open(); nothing of
  // `outer` is in flight. The first operation reports a failure.
  void open(StreamSocket& outer, void (*wake)(void* context) noexcept, void* context) noexcept;
  bool is_open() const noexcept { return outer_ != nullptr; }

  // Starts outer.receive, outer.send. Requires: is_open(), and the operation is not in flight;
  // say_end() was not called.
  void receive() noexcept;
  void send() noexcept;
  // Makes operations in flight complete soon, with an error; nothing is sent any more.
  void abort() noexcept;

  // Continues after wake(). Returns whether there was work.
  bool run() noexcept;

  // The first call announces the end to the peer, unless sending has failed or was aborted. Returns
  // whether the announcement is sent, so that close() may be called; if not, wake() says when to
  // ask again. Requires: no operation of `outer` is in flight.
  bool say_end() noexcept;
  // Detaches the descriptor, which stays the caller's, and frees all allocated memory. Requires: no
  // operation of the socket is in flight; say_end() tells.
  void close() noexcept;

  bool is_valid() const noexcept;

 private:
  static constexpr size_t kBufferBytes = 64 * kKiB;
  static_assert(kBufferBytes >= TlsSession::kBufferMinBytes);

  static void received(void* self, int64_t result) noexcept;
  static void sent(void* self, int64_t result) noexcept;
  void advance_all() noexcept;
  void wake_if_it_ends() noexcept;

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

  TlsEnvironment& environment_;
  StreamSocket* outer_ = nullptr;
  StreamSocket inner_;  // the attached socket
  void (*wake_)(void* context) noexcept = nullptr;
  void* wake_context_ = nullptr;
  bool is_attached_ = false;
  bool is_asked_ = false;  // run() is requested
  bool is_aborted_ = false;
  bool has_said_end_ = false;
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
