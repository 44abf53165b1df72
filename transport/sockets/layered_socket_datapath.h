// A connected stream socket, with or without a layer (stream_layer.h): the functions are the same
// for both. A connection begins without, and may start its layer at any time: with its first byte,
// or when the peer asks for it (STARTTLS).
//
// One receive and one send may be in flight at a time. They complete by callbacks, never from
// within the call that started them.
// Threads: the shard of the sockets. Cost without a layer: a comparison with nullptr.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/uio.h>

#include "platform/assert.h"
#include "transport/sockets/stream_layer.h"
#include "transport/sockets/stream_peer.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

class LayeredSocket final : public StreamPeer {
 public:
  // `result` is that of SocketOperation::completed.
  struct Callbacks {
    void (*received)(void* context, int64_t result) noexcept = nullptr;
    void (*sent)(void* context, int64_t result) noexcept = nullptr;
    void (*said_end)(void* context) noexcept = nullptr;  // call say_end() again
    void* context = nullptr;
  };

  // `layer`: that of this socket alone; nullptr: it never has one. `sockets` and `layer` outlive
  // this.
  LayeredSocket(StreamSockets& sockets, StreamLayer* layer, const Callbacks& callbacks) noexcept;
  LayeredSocket(const LayeredSocket&) = delete;
  LayeredSocket& operator=(const LayeredSocket&) = delete;

  // Whether it may start a layer; whether it has started it.
  bool has_layer() const noexcept { return own_layer_ != nullptr; }
  bool is_layered() const noexcept { return layer_ != nullptr; }
  bool is_open() const noexcept { return socket_.fd >= 0; }
  int fd() const noexcept override { return socket_.fd; }
  bool is_certified() const noexcept override { return is_layered() && layer_->is_certified(); }
  void* listener() const noexcept override { return listener_; }
  // Whether the peer has begun the handshake of the layer, and not ended it.
  bool is_in_handshake() const noexcept { return is_layered() && layer_->is_in_handshake(); }
  // When the peer last took bytes of a send that lasts for more than a second; 0: unknown.
  uint64_t taken_ns() const noexcept {
    return is_layered() ? layer_->taken_ns() : socket_.seen_since_ns;
  }
  bool is_receiving() const noexcept { return socket_.receive.is_in_flight; }
  bool is_sending() const noexcept { return socket_.send.is_in_flight; }

  // Takes over the connected socket `fd`; listener() is `of_listener` from now on. Returns 0; or an
  // errno: then `fd` is still the caller's. Requires: !is_open().
  int open(int fd, void* of_listener = nullptr) noexcept;
  // From now on the bytes go through the layer. `early`: received bytes that belong to the layer,
  // at most StreamLayer::kEarlyBytesMax. Requires: has_layer(), !is_layered(); nothing is in
  // flight.
  void start_layer(std::span<const std::byte> early = {}) noexcept;

  // Receives into `pieces`, and completes with `min_bytes` or more. Until then the socket owns the
  // pieces, and advances them. Requires: is_open(); !is_receiving().
  void receive(std::span<iovec> pieces, uint64_t min_bytes) noexcept {
    BP_DCHECK(!is_receiving() && !pieces.empty() && min_bytes > 0);
    socket_.receive.pieces = pieces.data();
    socket_.receive.piece_count = static_cast<uint32_t>(pieces.size());
    socket_.receive.min_bytes = min_bytes;
    if (is_layered()) return layer_->receive();
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
    if (is_layered()) return layer_->send();
    sockets_.send(socket_);
  }

  // Makes the receive in flight complete soon: as ever if its bytes have come, else with
  // -ECANCELED (StreamSockets::end_receive). May be repeated. Requires: is_receiving().
  void end_receive() noexcept;
  // Makes the receive in flight complete soon, as if the peer had closed its side. Sends continue.
  void stop_receiving() noexcept;
  // Tells the peer's host that nothing more comes. Receives continue. Requires: !is_layered();
  // !is_sending().
  void stop_sending() noexcept;
  // Whether the peer's host has not acknowledged all that was sent; of a Unix socket: whether the
  // peer has not taken it. Cost: a system call.
  bool has_unacknowledged() const noexcept;
  // Makes the operations in flight complete soon, with an error or, for a receive without a layer,
  // with 0. Nothing is sent any more.
  void abort() noexcept;
  // Tells the peer, through the layer, that nothing more comes. Returns whether this is complete,
  // so that the next two may be called; if not, said_end() says when to ask again. Requires:
  // nothing is in flight.
  bool say_end() noexcept { return !is_layered() || layer_->say_end(); }
  // Goes on without the layer. Returns 0; or an errno: then close() alone may follow. Requires:
  // is_layered(), and say_end() has returned true.
  int remove_layer() noexcept;
  // Closes the descriptor. Requires: nothing is in flight, and say_end() has returned true.
  void close() noexcept;

 private:
  StreamSockets& sockets_;
  StreamLayer* const own_layer_;
  StreamLayer* layer_ = nullptr;  // own_layer_, once it is started
  void (*const said_end_)(void* context) noexcept;
  StreamSocket socket_;
  void* listener_ = nullptr;
  bool is_attached_ = false;  // to the sockets; if it has a layer, the layer's socket is instead
};

}  // namespace bedplate
