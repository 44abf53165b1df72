// TlsStream: one connection's TLS, between its socket and the one that receives and sends by it.
//
// Its user begins without TLS, on a StreamSocket of its own. open() takes the descriptor over; from
// then on receive() and send() stand for those of StreamSockets, on the same operations of the same
// StreamSocket: they complete likewise, only that bytes are decrypted into the pieces and encrypted
// from them. The handshake happens below the first receive. So a connection without TLS has nothing
// in its way, and one with it is written once.
//
// Nothing completes from within receive(), send() or abort(): they ask for run(), by `wake`.
// Arrived bytes lie in one planned buffer, bytes to send in another; reading waits for the user, so
// a peer that sends more than is wanted waits, too.
//
// Invariants, which is_valid() looks at around each call: 1. The socket receives into the input,
// when that is used up. 2. The bytes being sent are a part of the pending ones. 3. One that is not
// open has nothing of a socket, and nothing of the library. 4. Once it is broken off both ways have
// ended. 5. Once it says its end nothing of its user's is in flight. And 6. once it has failed
// nothing more is read or written, and operations in flight end when the sockets' operations have
// (read_some, write_some, end_operations).
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/log_limit.h"
#include "platform/units.h"
#include "transport/sockets/stream_sockets.h"
#include "transport/tls/tls_counters.h"
#include "transport/tls/tls_session.h"

namespace bedplate {

// The parts that all streams of a server have in common. Outlives them.
struct TlsEnvironment {
  StreamSockets* sockets = nullptr;
  const TlsCredentials* credentials = nullptr;
  TlsCounters* counters = nullptr;
  LogLimit* log_limit = nullptr;
  const char* where = "";  // in the log: "[server]"
};

// Lies in memory that was planned. Threads: the shard of the sockets.
class TlsStream {
 public:
  explicit TlsStream(TlsEnvironment& environment) noexcept;
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Takes over `outer`, which is attached, from the sockets: its operations are the ones meant
  // below. `wake(context)` asks for a call of run() soon. Requires: !is_open(); nothing of `outer`
  // is in flight. A failure is told by the first operation.
  void open(StreamSocket& outer, void (*wake)(void* context) noexcept, void* context) noexcept;
  bool is_open() const noexcept { return outer_ != nullptr; }

  // Starts outer.receive, outer.send. Requires: it is not in flight.
  void receive() noexcept;
  void send() noexcept;
  // Makes operations in flight complete soon, with an error; nothing is sent any more.
  void abort() noexcept;

  // Goes on after wake(). Returns whether there was anything to do.
  bool run() noexcept;

  // Says to the peer that nothing more comes, once. Returns whether all of that is over: close()
  // may be called then; otherwise wake() says when to ask again. Requires: no operation of `outer`
  // is in flight.
  bool say_end() noexcept;
  // Lets go of the descriptor, which stays the caller's, and gives back what was allocated.
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
  StreamSocket inner_;  // what the sockets know
  void (*wake_)(void* context) noexcept = nullptr;
  void* wake_context_ = nullptr;
  bool is_attached_ = false;
  bool is_asked_ = false;  // run() has something to do
  bool is_aborted_ = false;
  bool has_said_end_ = false;
  bool is_deaf_ = false;     // the peer: the socket takes nothing any more
  int64_t receive_end_ = 1;  // what receives complete with from now on; 1: with bytes
  int64_t send_end_ = 1;     // the same of sends
  iovec receive_piece_;
  iovec send_piece_;
  TlsSession session_;
  std::byte input_[kBufferBytes];
  std::byte output_[kBufferBytes];
};

}  // namespace bedplate
