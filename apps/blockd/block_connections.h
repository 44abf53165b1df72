// The connections of a block server on one shard, with their sockets.
//
// A StreamAcceptor has the listeners, the count of connections and the drain. The connections are
// no StreamSessions: hundreds of requests are in flight, and are answered in any order, from where
// a store has their bytes.
//
//     poll()   takes the answers of volumes' shards, and the requests that have passed far limits
//              sends the replies of all connections that have some
//              rings once for the requests that the sockets and this poll have submitted
//
// A server has one such object on each shard of connections (block_server.h). Each has its own
// memory, requests, counters and lanes, and reaches every volume by a VolumeDoor. A request crosses
// if its volume is on another shard, and never touches a third one, unless a limit is set
// (block_limits.h). A shard that is full gives new clients to another one (client_moves.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apps/blockd/block_limits.h"
#include "apps/blockd/block_request.h"
#include "apps/blockd/far_limits_datapath.h"
#include "apps/blockd/nbd_connection_datapath.h"
#include "apps/blockd/nbd_counters.h"
#include "apps/blockd/nbd_export.h"
#include "apps/blockd/volume.h"
#include "apps/blockd/volume_counters.h"
#include "platform/free_list.h"
#include "platform/trace_ring.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/time_limit.h"
#include "transport/sockets/client_moves.h"
#include "transport/sockets/stream_acceptor.h"
#include "transport/sockets/stream_layer.h"
#include "transport/sockets/stream_linger.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

// The objects of a shard that its connections use. They outlive the server.
struct ConnectionsWiring {
  EventLoop* loop = nullptr;
  StreamSockets* sockets = nullptr;  // the loop's
  nbd::ConnectionCounters* counters = nullptr;
  StreamLayers* tls = nullptr;  // TLS for each connection; nullptr: none
  TraceWriter trace = {};       // of this shard
  // With several shards of connections:
  MoveCounters* moves = nullptr;
  nbd::LaneCounters* lanes = nullptr;
  std::vector<VolumeRequestCounters*> volumes = {};  // of each; empty: VolumeCounters::requests
};

// The two lanes between a shard of connections and one of volumes, as the former sees them.
struct ConnectionLanes {
  BlockLane requests = {};
  BlockRequestFifo* replies = nullptr;  // the receiving end
};

// Facts that operators change: the first shard of connections writes them, and the others follow
// (BlockConnections::follow).
struct BlockServerState {
  std::atomic<bool> is_accepting{true};
  std::atomic<bool> are_limits_on{false};
};

struct ConnectionsOptions {
  uint8_t number = 0;  // of the shard, among those of the server
  uint32_t connection_count = 0;
  uint32_t requests_per_connection = 0;
  uint64_t handshake_timeout_ns = 0;
  uint64_t client_timeout_ns = 0;
  std::span<std::byte> memory = {};          // connection_count times stride_bytes()
  std::span<std::byte> discard_memory = {};  // ConnectionEnvironment
  std::span<Volume> volumes = {};
  std::span<ConnectionLanes> lanes = {};  // by VolumePlan::shard
  const BlockServerState* state = nullptr;
  BlockLimits* limits = nullptr;
  FarLimits* far_limits = nullptr;  // nullptr: the limits are on this shard
};

// Threads: before start(), the one that sets it up; then the shard's, but for request_drain(),
// is_drained() and request_follow(). Nothing is allocated after create(). Lifetime: as long as the
// loops of all shards run.
class BlockConnections final : public PollSource {
 public:
  static constexpr uint32_t kReplyBudget = 64;  // of one poll

  BlockConnections() noexcept = default;
  BlockConnections(const BlockConnections&) = delete;
  BlockConnections& operator=(const BlockConnections&) = delete;

  // The memory of a connection with its requests.
  static uint64_t stride_bytes(uint32_t requests_per_connection) noexcept;

  // Before the seal, once. Requires: the volumes are open. Ownership: all that the arguments name
  // outlives this.
  void create(const ConnectionsOptions& options, const ConnectionsWiring& wiring);
  // Gives clients to the connections of another shard, and takes some (ClientMoves::join).
  // Requires: both are created, with ConnectionsWiring::moves.
  void join(BlockConnections& other) noexcept { moves_->join(*other.moves_); }
  // Accepts connections on `fd`, which stays the caller's. The wiring's layers say how its clients
  // use TLS. Called before start(). Requires: at most 8 listeners. `limit`: of
  // BlockServer::limits(); nullptr: none.
  void add_listener(int fd, BlockLimit* limit = nullptr) noexcept { acceptor_.add(fd, limit); }
  // Begins to listen.
  void start() noexcept { acceptor_.start(); }
  EventLoop& loop() noexcept { return *wiring_.loop; }

  // Stops listening, and lets every connection finish the requests that it has taken. A connection
  // that still negotiates is broken off. Threads: any.
  void request_drain() noexcept { acceptor_.request_drain(); }
  bool is_draining() const noexcept { return acceptor_.is_draining(); }
  // True when the drain is complete: no connection is open. Threads: any.
  bool is_drained() const noexcept { return acceptor_.is_drained(); }
  // Closes clients that are on their way to another shard. After the loops of all shards have run.
  void end() noexcept {
    if (moves_ != nullptr) moves_->end();
  }

  // Follows BlockServerState and Volume::is_read_only: now; or soon, from any thread.
  void follow() noexcept;
  void request_follow() noexcept { wiring_.loop->submit(follow_call_); }
  bool is_accepting() const noexcept {
    BP_DCHECK(is_own_thread());
    return acceptor_.is_accepting();
  }

  // ---- Called by its connections ----

  // Hands a new request to its limits, and then to its volume's shard. Requires: a limit is set
  // (ConnectionEnvironment::limits).
  void admit(BlockRequest& request) noexcept;
  // The client of the connection has left: drops its requests that wait for a limit. Requires: as
  // admit().
  void drop_waiting(nbd::Connection& connection) noexcept;
  // The connection has replies to send, or may have ended: flush_marked() visits it after this
  // batch.
  void mark(nbd::Connection& connection) noexcept;
  // The negotiation is over: its time is not limited any more.
  void handshake_done(nbd::Connection& connection) noexcept;

  uint32_t poll(uint32_t budget) noexcept override;

  // Invariants, checked before and after each poll: 1. A connection is either closed and in the
  // free list, or open. The acceptor is valid, and counts the open ones. 2. The list of marked
  // connections holds exactly those with is_marked set; each is open.
  bool is_valid() const noexcept;

 private:
  nbd::Connection& connection(uint32_t index) const noexcept {
    return *reinterpret_cast<nbd::Connection*>(options_.memory.data() + index * stride_bytes_);
  }
  bool is_own_thread() const noexcept { return wiring_.loop->is_own_thread(); }

  void make_doors();
  void make_environment() noexcept;
  void make_connections() noexcept;
  void make_acceptor();
  void set_limits_on(bool are_on) noexcept;
  void passed_limits(BlockRequest& request) noexcept;
  AcceptOutcome take(const AcceptedClient& client) noexcept;
  void drain() noexcept;
  uint32_t take_replies(uint32_t budget) noexcept;
  uint32_t flush_marked() noexcept;

  ConnectionsOptions options_;
  ConnectionsWiring wiring_;
  uint64_t stride_bytes_ = 0;
  nbd::ConnectionEnvironment environment_;
  std::vector<nbd::ExportInfo> exports_;  // one for each volume, contiguous for the handshake
  std::vector<VolumeDoor> doors_;
  StreamAcceptor acceptor_;
  std::unique_ptr<ClientMoves> moves_;  // nullptr: there are no other shards
  FreeList<&nbd::Connection::next_free> free_;
  nbd::Connection* first_marked_ = nullptr;
  TimeLimit negotiations_;
  StreamLinger lingering_;
  LoopCall follow_call_ = {
      .function = [](void* self) noexcept { static_cast<BlockConnections*>(self)->follow(); },
      .context = this};
};

}  // namespace bedplate
