// Sockets and watches in C: their part of bedplate_service.h.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>

#include <sys/un.h>
#include <unistd.h>

#include "apps/c_interface/service_c.h"
#include "transport/udp/udp_socket.h"

using namespace bedplate;

// C reads and writes the C++ structs of datagrams in place, without a copy.
static_assert(sizeof(bp_ip) == sizeof(IpAddress));
static_assert(sizeof(bp_datagram_address) == sizeof(DatagramAddress));
static_assert(offsetof(bp_datagram_address, port) == offsetof(DatagramAddress, port));
static_assert(sizeof(bp_received) == sizeof(ReceivedDatagram));
static_assert(offsetof(bp_received, from) == offsetof(ReceivedDatagram, from));
static_assert(offsetof(bp_received, received_ns) == offsetof(ReceivedDatagram, received_ns));
static_assert(offsetof(bp_received, ecn) == offsetof(ReceivedDatagram, ecn));
static_assert(offsetof(bp_received, is_kept) == offsetof(ReceivedDatagram, is_kept));
static_assert(sizeof(bp_outgoing) == sizeof(OutgoingDatagram));
static_assert(offsetof(bp_outgoing, to) == offsetof(OutgoingDatagram, to));
static_assert(offsetof(bp_outgoing, from) == offsetof(OutgoingDatagram, from));
static_assert(offsetof(bp_outgoing, ecn) == offsetof(OutgoingDatagram, ecn));
static_assert(sizeof(Watch) <= sizeof(bp_watch::reserved));
static_assert(sizeof(bp_piece) == sizeof(iovec) &&
              offsetof(bp_piece, bytes) == offsetof(iovec, iov_len));

namespace {

DatagramAddress to_cpp(const bp_datagram_address& address) noexcept {
  DatagramAddress made;
  std::memcpy(static_cast<void*>(&made), &address, sizeof made);
  return made;
}
IpAddress to_cpp(const bp_ip* ip) noexcept {
  IpAddress made;
  if (ip != nullptr) std::memcpy(static_cast<void*>(&made), ip, sizeof made);
  return made;
}
bp_datagram_address to_c(const DatagramAddress& address) noexcept {
  bp_datagram_address made;
  std::memcpy(&made, &address, sizeof made);
  return made;
}

// Writes `address` in the kernel's form and returns its length; 0: it cannot be connected to.
socklen_t name_of(const SocketAddress& address, sockaddr_storage* kernel) {
  if (address.kind == SocketAddress::Kind::kUnix) {
    auto& name = *reinterpret_cast<sockaddr_un*>(kernel);
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, address.path.c_str(), address.path.size() + 1);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.path.size() + 1);
  }
  const auto ip = parse_ip_address(address.host);
  if (!ip) return 0;
  return to_kernel({*ip, address.port, 0}, reinterpret_cast<sockaddr_in6*>(kernel));
}

void connecting_completed(void* self, int result) noexcept {
  auto& stream = *static_cast<bp_stream*>(self);
  const int fd = stream.connecting.fd;
  if (result == 0) result = -bp_stream_open(&stream, fd);
  if (result != 0) {
    close(fd);
    stream.socket.fd = -1;
  }
  stream.connected(stream.connected_context, result);
}

}  // namespace

extern "C" {

// ---- Streams ----

bp_stream* bp_stream_create(bp_context* context, unsigned shard) {
  CService& service = of(context);
  bp_stream& stream = service.streams.emplace_back();
  stream.sockets = &service.context->sockets(shard);
  stream.loop = &service.context->loop(shard);
  return &stream;
}

int bp_stream_open(bp_stream* stream, int fd) {
  stream->socket.fd = fd;
  return stream->sockets->attach(stream->socket);
}
void bp_stream_close(bp_stream* stream) {
  stream->sockets->detach(stream->socket);
  close(stream->socket.fd);
  stream->socket.fd = -1;
}
void bp_stream_abort(bp_stream* stream) {
  if (stream->connecting.is_in_flight) return abort_connecting(stream->connecting);
  stream->sockets->abort(stream->socket);
}

static void begin(SocketOperation& operation, bp_stream::Half& half, const bp_piece* pieces,
                  size_t piece_count, size_t min, void (*done)(void* context, int64_t result),
                  void* context) {
  BP_ASSERT(piece_count >= 1 && piece_count <= BP_PIECES_MAX);
  std::memcpy(half.pieces, pieces, piece_count * sizeof *pieces);
  half.done = done;
  half.context = context;
  operation.pieces = half.pieces;
  operation.piece_count = static_cast<uint32_t>(piece_count);
  operation.min_bytes = min;
  operation.context = &half;
  operation.completed = [](void* self, int64_t result) noexcept {
    const auto& ended = *static_cast<bp_stream::Half*>(self);
    ended.done(ended.context, result);
  };
}
void bp_stream_receive(bp_stream* stream, void* into, size_t bytes, size_t min,
                       void (*done)(void* context, int64_t result), void* context) {
  const bp_piece piece = {into, bytes};
  begin(stream->socket.receive, stream->receive, &piece, 1, min, done, context);
  stream->sockets->receive(stream->socket);
}
void bp_stream_send(bp_stream* stream, const void* from, size_t bytes,
                    void (*done)(void* context, int64_t result), void* context) {
  const bp_piece piece = {from, bytes};
  bp_stream_send_pieces(stream, &piece, 1, done, context);
}
void bp_stream_send_pieces(bp_stream* stream, const bp_piece* pieces, size_t piece_count,
                           void (*done)(void* context, int64_t result), void* context) {
  begin(stream->socket.send, stream->send, pieces, piece_count, 1, done, context);
  stream->sockets->send(stream->socket);
}
void bp_stream_end_receive(bp_stream* stream) { stream->sockets->end_receive(stream->socket); }

int bp_stream_connect(bp_stream* stream, const char* address, uint64_t time_ns_max,
                      void (*connected)(void* context, int result), void* context) {
  auto parsed = parse_socket_address(address);
  if (!parsed.ok()) return c_fail(parsed.error()), EINVAL;
  sockaddr_storage name = {};
  const socklen_t name_bytes = name_of(parsed.value(), &name);
  if (name_bytes == 0) {
    return bp_fail("connecting a stream", "\"activation:\" is not an address to connect to",
                   "write \"tcp:ADDRESS:PORT\" or \"unix:/PATH\""),
           EINVAL;
  }
  Fd fd(socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return errno;
  stream->connected = connected;
  stream->connected_context = context;
  stream->connecting.fd = fd.number();
  stream->connecting.time_ns_max = time_ns_max;
  stream->connecting.context = stream;
  stream->connecting.completed = &connecting_completed;
  const int refused = start_connecting(*stream->sockets, *stream->loop, stream->connecting,
                                       reinterpret_cast<sockaddr*>(&name), name_bytes);
  if (refused == 0) fd.release();
  return refused;
}

// ---- Watches ----

// The loop's own Watch is stored in `reserved`, and stays there between two calls.
int bp_watch_start(bp_loop* loop, bp_watch* watch) {
  auto* own = reinterpret_cast<Watch*>(watch->reserved);
  if (own->ready == nullptr) {
    new (own) Watch;
    own->context = watch;
    own->ready = [](void* self, uint32_t events) noexcept {
      auto* is_ready = static_cast<bp_watch*>(self);
      is_ready->ready(is_ready->context, events);
    };
  }
  own->fd = watch->fd;
  own->events = watch->events;
  return watch->ready == nullptr ? EINVAL : loop->sockets->start_watching(*own);
}
void bp_watch_stop(bp_loop* loop, bp_watch* watch) {
  auto* own = reinterpret_cast<Watch*>(watch->reserved);
  if (own->ready != nullptr) loop->sockets->stop_watching(*own);
}

// ---- Datagrams ----

bp_datagram_socket* bp_datagram_create(bp_context* context, const char* name) {
  CService& service = of(context);
  auto made = service.context->datagram_socket(name);
  if (!made.ok()) return c_fail(made.error()), nullptr;
  bp_datagram_socket& socket = service.datagram_sockets.emplace_back();
  socket.socket = made.value();
  return &socket;
}

int bp_datagram_address_of(const char* text, bp_datagram_address* address) {
  auto parsed = parse_datagram_address(text);
  if (!parsed.ok()) return c_fail(parsed.error());
  *address = to_c(parsed.value());
  return 0;
}

int bp_datagram_open(bp_datagram_socket* socket, const bp_datagram_options* options) {
  DatagramOptions made;
  made.local = to_cpp(options->local);
  made.peer = to_cpp(options->peer);
  made.receive_queue_bytes = options->receive_queue_bytes;
  made.send_queue_bytes = options->send_queue_bytes;
  made.shares_port = options->shares_port != 0;
  made.joins_received = options->joins_received != 0;
  made.service_class = static_cast<uint8_t>(std::min(options->service_class, 255U));
  made.multicast_interface = options->multicast_interface;
  if (options->multicast_hops != 0) {
    made.multicast_hops = static_cast<uint8_t>(std::min(options->multicast_hops, 255U));
  }
  made.hears_own_multicast = options->hides_own_multicast == 0;
  made.sends_broadcast = options->sends_broadcast != 0;
  socket->options = *options;
  made.owner.context = socket;
  if (options->received != nullptr) {
    made.owner.received = [](void* self, std::span<ReceivedDatagram> some) noexcept {
      const auto& to = static_cast<bp_datagram_socket*>(self)->options;
      to.received(to.self, reinterpret_cast<bp_received*>(some.data()), some.size());
    };
  }
  if (options->has_room != nullptr) {
    made.owner.has_room = [](void* self) noexcept {
      const auto& to = static_cast<bp_datagram_socket*>(self)->options;
      to.has_room(to.self);
    };
  }
  if (options->failed != nullptr) {
    made.owner.failed = [](void* self, int error_number, const DatagramAddress& where) noexcept {
      const auto& to = static_cast<bp_datagram_socket*>(self)->options;
      const bp_datagram_address address = to_c(where);
      to.failed(to.self, error_number, &address);
    };
  }
  auto opened = socket->socket->open(made);
  return opened.ok() ? 0 : c_fail(opened.error());
}

int bp_datagram_start(bp_datagram_socket* socket) { return socket->socket->start(); }
void bp_datagram_close(bp_datagram_socket* socket) { socket->socket->close(); }
bp_datagram_address bp_datagram_local(const bp_datagram_socket* socket) {
  return to_c(socket->socket->local());
}

int bp_datagram_join(bp_datagram_socket* socket, const bp_ip* group, const bp_ip* source,
                     const char* interface) {
  auto joined = socket->socket->join(to_cpp(group), to_cpp(source), interface);
  return joined.ok() ? 0 : c_fail(joined.error());
}
int bp_datagram_leave(bp_datagram_socket* socket, const bp_ip* group, const bp_ip* source,
                      const char* interface) {
  auto left = socket->socket->leave(to_cpp(group), to_cpp(source), interface);
  return left.ok() ? 0 : c_fail(left.error());
}

int bp_datagram_rejoin(bp_datagram_socket* socket, const bp_ip* group, const bp_ip* source,
                       uint32_t left_index, uint32_t index) {
  return socket->socket->rejoin(to_cpp(group), to_cpp(source), left_index, index);
}
int bp_datagram_send_multicast_over(bp_datagram_socket* socket, uint32_t index) {
  return socket->socket->send_multicast_over(index);
}

int bp_datagram_send(bp_datagram_socket* socket, bp_outgoing* datagrams, size_t count,
                     size_t* sent_count) {
  const DatagramsSent sent =
      socket->socket->send_batch({reinterpret_cast<OutgoingDatagram*>(datagrams), count});
  if (sent_count != nullptr) *sent_count = sent.sent_count;
  switch (sent.status) {
    case DatagramStatus::kDone: return 0;
    case DatagramStatus::kAgain: return EAGAIN;
    case DatagramStatus::kRefused: break;
  }
  return sent.error_number;
}

void bp_datagram_release(bp_datagram_socket* socket, const void* bytes) {
  socket->socket->release(static_cast<const std::byte*>(bytes));
}

}  // extern "C"
