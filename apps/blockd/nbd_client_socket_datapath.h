// A client's socket, as its connection uses it: plain at first, within TLS after STARTTLS. The
// functions are the same for both.
//
// One receive and one send may be in flight at a time. They complete by callbacks, never from
// within the call that started them.
// Threads: the shard of the sockets.
#pragma once

#include <cstdint>
#include <span>

#include <sys/uio.h>

#include "platform/assert.h"
#include "transport/sockets/stream_sockets.h"
#include "transport/tls/tls_stream.h"

namespace bedplate::nbd {

class ClientSocket {
 public:
  // `result` is that of SocketOperation::completed.
  struct Callbacks {
    void (*received)(void* context, int64_t result) noexcept = nullptr;
    void (*sent)(void* context, int64_t result) noexcept = nullptr;
    void (*wake)(void* context) noexcept = nullptr;  // TLS asks for a call of run(), soon
    void* context = nullptr;
  };

  // `tls`: the stream of this socket alone; nullptr: no TLS. `sockets` and `tls` outlive this.
  ClientSocket(StreamSockets& sockets, TlsStream* tls, const Callbacks& callbacks) noexcept;
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  bool has_tls() const noexcept { return tls_ != nullptr; }
  bool is_open() const noexcept { return socket_.fd >= 0; }
  bool is_receiving() const noexcept { return socket_.receive.is_in_flight; }
  bool is_sending() const noexcept { return socket_.send.is_in_flight; }

  // Takes over the connected socket `fd`. Returns 0; or an errno: then `fd` is still the caller's.
  // Requires: !is_open().
  int open(int fd) noexcept;
  // From now on TLS protects the bytes. Requires: has_tls(); nothing is in flight.
  void start_tls() noexcept;

  // Receives into `pieces`, and completes with `min_bytes` or more. Until then the socket owns the
  // pieces, and advances them. Requires: is_open(); !is_receiving().
  void receive(std::span<iovec> pieces, uint64_t min_bytes) noexcept {
    BP_DCHECK(!is_receiving() && !pieces.empty() && min_bytes > 0);
    socket_.receive.pieces = pieces.data();
    socket_.receive.piece_count = static_cast<uint32_t>(pieces.size());
    socket_.receive.min_bytes = min_bytes;
    if (is_secure()) return tls_->receive();
    sockets_.receive(socket_);
  }
  // The `min_bytes` of the last receive.
  uint64_t receive_min_bytes() const noexcept { return socket_.receive.min_bytes; }

  // Sends all of `pieces`. Until this completes the socket owns the pieces, and advances them; the
  // bytes stay as they are. Requires: is_open(); !is_sending().
  void send(std::span<iovec> pieces) noexcept {
    BP_DCHECK(!is_sending() && !pieces.empty());
    socket_.send.pieces = pieces.data();
    socket_.send.piece_count = static_cast<uint32_t>(pieces.size());
    if (is_secure()) return tls_->send();
    sockets_.send(socket_);
  }

  // Continues after wake(). Returns whether there was anything to do.
  bool run() noexcept { return is_secure() && tls_->run(); }

  // Makes the receive in flight complete soon, as if the client had closed its side. Sends
  // continue.
  void stop_receiving() noexcept;
  // Makes the operations in flight complete soon, with an error or, for a receive without TLS, with
  // 0. Nothing is sent any more.
  void abort() noexcept;
  // Tells the client that nothing more comes. Returns whether this is complete, so that close() may
  // be called; if not, wake() says when to ask again. Requires: nothing is in flight.
  bool say_end() noexcept { return !is_secure() || tls_->say_end(); }
  // Closes the descriptor. Requires: nothing is in flight.
  void close() noexcept;

 private:
  bool is_secure() const noexcept { return tls_ != nullptr && tls_->is_open(); }

  StreamSockets& sockets_;
  TlsStream* const tls_;
  void (*const wake_)(void* context) noexcept;
  StreamSocket socket_;
};

}  // namespace bedplate::nbd
