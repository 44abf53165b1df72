// One NBD connection: a handshake, then requests in and replies out, many in flight.
//
// Receiving. Requests are read ahead, many at a time (ReadAhead). If all the payload of a write
// came with its header, the volume's shard copies it out of the read-ahead buffer. Any other
// payload goes straight from the socket into the destination that the volume's shard grants. The
// same receive also takes the bytes behind the payload; a part of the payload that was read ahead
// is copied there. While a write waits for its grant, nothing is received: the next bytes of the
// stream are its payload.
// Sending. Replies that are ready leave in one send, up to 64 of them (ReplyQueue).
//
// States: closed -> negotiating -> serving -> finishing -> lingering -> closed; an end of the
// negotiation leads straight to finishing. `finishing` takes no more requests, and answers the
// outstanding ones. `is_broken`: no answer reaches the client. When no operation is in flight and
// every request is back, the connection is closed; it lingers before that (stream_linger.h) if the
// client's host lacks something that was sent: the last replies, or why TLS has failed. Requests
// that wait for a limit are dropped if the client has left without saying so.
//
// Invariants, which is_valid() checks around calls from outside: 1. Each request is in one state:
// free, submitted (with the volume's shard, or waiting for a limit on the way), ready to be
// answered, being sent, or, while its payload arrives, write_ or refused_. 2. write_ is set exactly
// while its grant or its payload is awaited; refused_ exactly while its payload is discarded.
// 3. The bytes read ahead are valid; the writes whose payloads lie in the read-ahead buffer are
// submitted. 4. A closed connection has no descriptor, nothing in flight, and all its requests; one
// that lingers sends nothing, and has all its requests.
// Threads: the shard of the connections.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/uio.h>

#include "apps/blockd/block_request.h"
#include "apps/blockd/nbd_counters.h"
#include "apps/blockd/nbd_export.h"
#include "apps/blockd/nbd_negotiation.h"
#include "apps/blockd/nbd_read_ahead_datapath.h"
#include "apps/blockd/nbd_reply_queue_datapath.h"
#include "apps/blockd/nbd_request_datapath.h"
#include "apps/blockd/volume.h"
#include "platform/free_list.h"
#include "platform/trace_ring.h"
#include "transport/loop/event_loop.h"
#include "transport/sockets/layered_socket_datapath.h"
#include "transport/sockets/stream_linger.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

class BlockConnections;
class BlockLimit;
class BlockLimits;

}  // namespace bedplate

namespace bedplate::nbd {

// The state that all connections of a shard share. It outlives them.
struct ConnectionEnvironment {
  BlockConnections* server = nullptr;
  uint8_t number = 0;  // of the shard, among those of the server: BlockRequest::home
  StreamLinger* lingering = nullptr;
  StreamSockets* sockets = nullptr;
  const EventLoop* loop = nullptr;  // the loop of the sockets; tells the time
  ConnectionCounters* counters = nullptr;
  std::span<const ExportInfo> exports;
  std::span<VolumeDoor> doors;          // same order as the exports
  std::span<std::byte> discard_memory;  // receives the payload of refused writes; never read
  TraceWriter trace;
  const BlockLimits* limits = nullptr;  // nullptr while no limit is set
};

// The server limits the time of its negotiation, and then the time for which it lingers.
class Connection : public MayLinger {
 public:
  // `requests`: the slots of this connection's requests. `tls`: the layer of this connection
  // alone; nullptr: the server has no TLS. All arguments outlive the connection.
  Connection(const ConnectionEnvironment& environment, std::span<BlockRequest> requests,
             StreamLayer* tls = nullptr) noexcept;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Takes over the socket `fd` and begins the handshake. Requires: is_closed(); `tls` is kNone if
  // the connection has no TLS. `limit`: of its listener; nullptr: none. Returns 0; or an errno:
  // then `fd` is still the caller's.
  int open(int fd, LayerUse tls, BlockLimit* limit) noexcept;

  // A request comes back from the volume's shard.
  void request_returned(BlockRequest& request) noexcept;
  // A request will not reach the volume's shard: the client left while it waited for a limit.
  void request_dropped(BlockRequest& request) noexcept;

  // Sends the replies that are ready, and closes if everything is done: look at is_closed()
  // afterwards. Called after BlockConnections::mark(). The loop's clock times the answers.
  void flush() noexcept;
  // Whether flush() would send replies.
  bool has_answers() const noexcept {
    return replies_.has_ready() && !socket_.is_sending() && !is_broken_;
  }

  // Takes no more requests, answers the ones in flight, then closes. A connection that still
  // negotiates is broken off.
  void finish() noexcept;
  // The client took too long to negotiate, or it lingers and did not close: closes soon. Requires:
  // one of both.
  void overdue() noexcept;

  // If the client has opened the volume of `door`, refuses the client's writes from the next
  // request on, or accepts them again.
  void set_read_only(const VolumeDoor& door, bool is_read_only) noexcept {
    if (door_ == &door) view_.read_only = is_read_only;
  }

  bool is_closed() const noexcept { return phase_ == Phase::kClosed; }
  // Whether the invariants hold. Cost: a walk through the requests.
  bool is_valid() const noexcept;

  // For the server's lists.
  Connection* next_marked = nullptr;
  bool is_marked = false;
  // For the limits, which may be on another shard. Its requests that wait for them are dropped: the
  // client has left.
  std::atomic<bool> has_left{false};
  BlockLimit* listener_limit = nullptr;  // of its client's listener; nullptr: none
  Connection* next_free = nullptr;

 private:
  enum class Phase : uint8_t { kClosed, kNegotiating, kServing, kFinishing, kLingering };
  // The kind of the bytes that arrive next.
  enum class Incoming : uint8_t {
    kHandshake,
    kHeaders,
    kNothing,  // a write waits for its grant
    kPayload,  // the payload of write_, and perhaps the next headers
    kDiscard,  // the payload of refused_
    kDropped,  // nobody takes it: the connection lingers
  };

  static void receive_completed(void* context, int64_t result) noexcept;
  static void send_completed(void* context, int64_t result) noexcept;

  void received(uint64_t bytes) noexcept;
  void receive_ended(int64_t result) noexcept;
  void receive_more() noexcept;

  void negotiate() noexcept;
  void start_tls() noexcept;
  void enter_transmission(size_t export_index) noexcept;

  void parse() noexcept;
  bool parse_one() noexcept;
  void accept(BlockRequest& request) noexcept;
  RequestStep accept_write(BlockRequest& request) noexcept;
  void discard_payload(BlockRequest& request, uint32_t bytes) noexcept;
  void submit(BlockRequest& request, RequestStep step) noexcept;
  void payload_granted() noexcept;
  void payload_ended(RequestStep step) noexcept;

  void queue_reply(BlockRequest& request) noexcept;
  void release(BlockRequest& request) noexcept;
  void end_request(BlockRequest& request) noexcept;
  void pass(BlockRequest& request, RequestStation station) const noexcept {
    request.trace.pass(station, environment_.loop->now_ns());
  }

  void protocol_error() noexcept;
  void count_broken() noexcept;
  // Closes as soon as nothing is in flight; answers nothing more. `result`: of the operation that
  // has failed, if one has.
  void break_off(int64_t result = 0) noexcept;
  void drop_waiting() noexcept;
  void try_end() noexcept;
  void close() noexcept;
  bool is_own_thread() const noexcept { return environment_.loop->is_own_thread(); }

  const ConnectionEnvironment& environment_;
  LayeredSocket socket_;
  Phase phase_ = Phase::kClosed;
  Incoming incoming_ = Incoming::kHandshake;
  bool is_broken_ = false;
  bool is_counted_broken_ = false;  // counted once, though sending and receiving may both fail
  bool has_failed_layer_ = false;   // is_broken_ by its layer alone: the client hears why
  bool has_client_ended_ = false;   // the client sends nothing any more
  iovec receive_pieces_[2];
  iovec handshake_piece_;

  VolumeDoor* door_ = nullptr;  // of its volume
  ExportView view_ = {};
  uint64_t discard_left_bytes_ = 0;
  BlockRequest* write_ = nullptr;    // the write whose payload is being received or waited for
  BlockRequest* refused_ = nullptr;  // answered once its payload has been discarded
  FreeList<&BlockRequest::next> free_requests_;
  uint32_t taken_count_ = 0;  // requests that are not free
  const uint32_t request_count_;
  uint32_t submitted_count_ = 0;  // requests that are with the volume's shard, or wait for a limit
  ReplyQueue replies_;

  Negotiation negotiation_;
  ReadAhead read_ahead_;
};

}  // namespace bedplate::nbd
