// StreamLayer: a layer between a connected stream socket and its user, such as TLS. The bytes of
// the user go through it, both ways.
//
// A connection begins without its layer. open() takes the descriptor over; from then on the layer's
// receive() and send() replace those of StreamSockets, on the same operations of the same
// StreamSocket, until close(). So a user's code serves both, and a connection without a layer pays
// nothing (layered_socket_datapath.h).
//
// Threads: the shard of the sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/loop/event_loop.h"
#include "transport/sockets/layer_use.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

class StreamLayer {
 public:
  // The most bytes that open() takes over.
  static constexpr size_t kEarlyBytesMax = kLayerEarlyBytesMax;

  StreamLayer() noexcept = default;
  StreamLayer(const StreamLayer&) = delete;
  StreamLayer& operator=(const StreamLayer&) = delete;

  // Takes over `outer`, which is attached, from the sockets. The functions below use its
  // operations, which complete as with StreamSockets: on the shard, and never from within these
  // functions. The callee of a completion may call any of them. `early`: bytes that the user has
  // received already, and that the layer must get first. Requires: the layer is closed; nothing of
  // `outer` is in flight. The first operation reports a failure.
  virtual void open(StreamSocket& outer, std::span<const std::byte> early,
                    void (*said_end)(void* context) noexcept, void* context) noexcept = 0;

  // Starts outer.receive, outer.send. Requires: the operation is not in flight; say_end() was not
  // called. -EPROTO: the layer has failed, by the peer's doing; it has told the peer why, the bytes
  // of later operations do not move, and the socket below it is whole. -ETIMEDOUT: it took the peer
  // too long to begin.
  virtual void receive() noexcept = 0;
  virtual void send() noexcept = 0;
  // As StreamSockets::end_receive. Requires: the receive is in flight.
  virtual void end_receive() noexcept = 0;
  // Makes operations in flight complete soon, with an error; nothing is sent any more.
  virtual void abort() noexcept = 0;

  // The first call tells the peer that nothing more comes, unless sending has failed or was
  // aborted. Returns whether the peer has been told, so that close() may be called; if not,
  // said_end() is called when another call may return true. Requires: no operation of `outer` is in
  // flight.
  virtual bool say_end() noexcept = 0;
  // Whether the peer has shown a certificate that the layer trusts.
  virtual bool is_certified() const noexcept { return false; }
  // Whether the peer has begun the layer's handshake, and not ended it: its user hears nothing yet.
  virtual bool is_in_handshake() const noexcept { return false; }
  // When the peer last took bytes of a send that lasts (StreamSocket::seen_since_ns); 0: unknown.
  virtual uint64_t taken_ns() const noexcept { return 0; }
  // Gives the descriptor back, attached to nothing, and frees all that the layer has allocated.
  // Requires: say_end() has returned true.
  virtual void close() noexcept = 0;

 protected:
  ~StreamLayer() = default;
};

// The layers of a server's connections on one shard, in planned memory. The loop of the shard polls
// this object, so that the layers go on: it is a source behind those of the server.
class StreamLayers : public PollSource {
 public:
  // The layer of one more connection, for as long as this object lives. Requires: at most the
  // planned number. Before the seal.
  virtual StreamLayer& make() noexcept = 0;
  // For the clients of the listening socket `fd`.
  virtual LayerUse use_on(int fd) const noexcept = 0;
  // Whether a client whose first byte is `first` speaks the layer's protocol. It must not be the
  // first byte of the server's own protocol.
  virtual bool is_begun_by(std::byte first) const noexcept = 0;
};

}  // namespace bedplate
