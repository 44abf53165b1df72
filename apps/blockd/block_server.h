// blockd: an NBD server whose volumes lie in the pool, or on stores.
//
// The connections and their sockets run on one shard, where a StreamAcceptor has the listeners, the
// counts of connections and the drain. The connections are no StreamSessions: hundreds of requests
// are in flight, and are answered in any order, from where a store has their bytes.
//
// Each volume runs on this shard or on another one. Each shard that has volumes has two lanes: one
// brings requests, the other takes replies back. Connections, request slots, lanes and volumes lie
// in the segments that plan_block_server() asked for: the configuration fixes their number. A
// connection beyond the maximum is closed at once.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/blockd/block_limits.h"
#include "apps/blockd/block_request.h"
#include "apps/blockd/nbd_connection_datapath.h"
#include "apps/blockd/nbd_counters.h"
#include "apps/blockd/nbd_negotiation.h"
#include "apps/blockd/volume.h"
#include "apps/blockd/volume_datapath.h"
#include "pinned_pool/plan.h"
#include "platform/free_list.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/time_limit.h"
#include "transport/sockets/stream_acceptor.h"
#include "transport/sockets/stream_layer.h"
#include "transport/sockets/stream_linger.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

struct BlockServerOptions {
  std::vector<VolumePlan> volumes;
  std::vector<LimitPlan> limits = {};  // also those without rates, which may get some later
  uint32_t max_connections = 64;
  uint32_t requests_per_connection = 64;
  uint64_t handshake_timeout_ns = 10 * kNsPerSecond;
  uint64_t client_timeout_ns = 60 * kNsPerSecond;  // for clients over TCP; 0: no timeout
  Placement placement = {};                        // of all memory but the volumes
};

// The segments that a server with these options needs: one for the server, one for each volume.
std::vector<SegmentRequest> plan_block_server(const BlockServerOptions& options);

// The volume's name, as it appears in names of owners and counters. A name over 48 bytes is cut
// there and ends in "~" and the volume's index, so it stays unique.
std::string short_volume_name(const BlockServerOptions& options, size_t index);
// The same for the name of a limit, which is unique for its kind.
std::string short_limit_name(const BlockServerOptions& options, size_t index);

// The objects of the shards that a server uses.
struct BlockServerWiring {
  EventLoop* connections_loop = nullptr;
  StreamSockets* sockets = nullptr;           // the sockets of the connections' shard
  std::vector<EventLoop*> volume_loops = {};  // the loop of each shard that has volumes
  nbd::ConnectionCounters* connection_counters = nullptr;
  StreamLayers* tls = nullptr;                      // TLS for each connection; nullptr: none
  TraceWriter trace = {};                           // the writer of the connections' shard
  std::vector<LimitCounters*> limit_counters = {};  // of each limit of the options
};

class BlockServer final : public PollSource {
 public:
  // Hands out the carve that plan_block_server() planned for `owner`.
  using Carve = std::function<Result<std::span<std::byte>>(const OwnerName& owner)>;
  // Fills in the counters of the volume with this index. If the volume's plan has a queue, it also
  // fills in the store and the store's counters.
  using OpenVolume = std::function<Result<void>(size_t index, Volume& volume)>;

  // The budgets of one poll: kVolumeBudget for each source_of(), kReplyBudget for this object.
  static constexpr uint32_t kVolumeBudget = 64;
  static constexpr uint32_t kReplyBudget = 64;

  // Takes the memory that plan_block_server asked for, and opens the volumes. The caller adds
  // source_of(N) to the N-th loop of the volumes, then this to the connections' loop, which has
  // timers for BlockLimits::timer_count(). Called once. Requires: the pool is not sealed; `wiring`
  // has a loop for each shard number in the volumes' plans; `wiring`'s parts outlive this. Errors:
  // those of `carve` and `open_volume`.
  Result<void> create(const Carve& carve, const OpenVolume& open_volume,
                      const BlockServerOptions& options, const BlockServerWiring& wiring);
  PollSource& source_of(uint32_t shard) noexcept { return shards_[shard].service; }

  // Accepts connections on `fd`, which stays the caller's. The wiring's layers say how its clients
  // use TLS. Called before start(). Requires: at most 8 listeners. `limit`: of limits(); nullptr:
  // none.
  void add_listener(int fd, BlockLimit* limit = nullptr) noexcept { acceptor_.add(fd, limit); }

  // Begins to listen. Threads: the connections' shard.
  void start() noexcept { acceptor_.start(); }

  // Stops listening, releases the held requests of all volumes, and lets every connection finish
  // the requests that it has taken. A connection that still negotiates is broken off. Threads: any.
  void request_drain() noexcept;

  // ---- While it runs: calls for the control socket ----

  // The index of the volume of this name; nothing: no volume has this name. Threads: any.
  std::optional<size_t> find_volume(std::string_view name) const noexcept;
  // All volumes, by their indices; each field names its threads.
  std::span<Volume> volumes() noexcept { return volumes_; }
  EventLoop& connections_loop() noexcept { return *wiring_.connections_loop; }
  EventLoop& volume_loop(size_t volume) noexcept {
    BP_DCHECK(volume < volumes_.size());
    return *wiring_.volume_loops[volumes_[volume].plan->shard];
  }

  // Whether clients' writes are refused. Threads: the connections' shard.
  bool is_read_only(size_t volume) const noexcept {
    BP_DCHECK(is_own_thread() && volume < volumes_.size());
    return volumes_[volume].exported->read_only;
  }
  // Takes effect with each client's next request. Requires: a volume whose plan is read_only stays
  // read-only. Threads: the connections' shard.
  void set_read_only(size_t volume, bool is_read_only) noexcept;
  // Whether new clients are served. If not, their connections are closed at once. A drain ends it
  // for good. Threads: the connections' shard.
  bool is_accepting() const noexcept {
    BP_DCHECK(is_own_thread());
    return acceptor_.is_accepting();
  }
  void set_accepting(bool is_accepting) noexcept {
    BP_DCHECK(is_own_thread());
    acceptor_.set_accepting(is_accepting);
  }

  // Whether new requests wait before they reach the volume. Threads: any.
  bool is_held(size_t volume) const noexcept {
    BP_DCHECK(volume < volumes_.size());
    return volumes_[volume].hold.is_on.load(std::memory_order_relaxed);
  }
  // Holds new requests, or releases the held ones. Returns the number of requests released.
  // Threads: the volume's shard.
  uint32_t set_held(size_t volume, bool is_held) noexcept {
    BP_DCHECK(volume_loop(volume).is_own_thread());
    return shards_[volumes_[volume].plan->shard].service.hold(volumes_[volume], is_held);
  }

  // The limits of its options; a drain ends all of them. BlockLimits names their threads.
  BlockLimits& limits() noexcept { return limits_; }
  // Changes one of limits(); takes effect with the next request, and for those that wait. Requires:
  // the server does not drain. Threads: the connections' shard.
  void set_limit(RequestLimit& limit, const LimitRates& rates) noexcept;

  // Whether the drain is complete: no connection is open. Threads: any.
  bool is_drained() const noexcept { return acceptor_.is_drained(); }

  // ---- Called by its connections, on their shard ----

  // Hands `request` to the volume's shard.
  void submit(BlockRequest& request) noexcept;
  // The connection has replies to send, or may have ended: flush_marked() visits it after this
  // batch.
  void mark(nbd::Connection& connection) noexcept;
  // The negotiation is over: its time is not limited any more.
  void handshake_done(nbd::Connection& connection) noexcept;

  uint32_t poll(uint32_t budget) noexcept override;

  // Invariants, checked before and after each poll, on the connections' shard: 1. A connection is
  // either closed and in the free list, or open. The acceptor is valid, and counts the open ones.
  // 2. The list of marked connections holds exactly those with is_marked set; each is open.
  bool is_valid() const noexcept;

 private:
  nbd::Connection& connection(uint32_t index) const noexcept {
    return *reinterpret_cast<nbd::Connection*>(connection_memory_.data() +
                                               index * connection_stride_bytes_);
  }
  bool is_own_thread() const noexcept { return wiring_.connections_loop->is_own_thread(); }

  Result<void> take_memory(const Carve& carve);
  Result<void> make_shards(const Carve& carve);
  Result<void> add_volumes(const Carve& carve, const OpenVolume& open_volume);
  void make_connections() noexcept;
  void make_acceptor() noexcept;
  AcceptOutcome take(const AcceptedClient& client) noexcept;
  void drain() noexcept;
  uint32_t take_replies(uint32_t budget) noexcept;
  uint32_t flush_marked() noexcept;

  // A shard that has volumes, as the connections' shard sees it.
  struct VolumeShard {
    VolumeShard(BlockServer& its_server, uint32_t its_number) noexcept
        : server(its_server), number(its_number) {}
    static void release_held(void* shard) noexcept;

    BlockServer& server;
    const uint32_t number;
    VolumeService service;
    VolumeLanes lanes[1];
    BlockLane requests;                   // the connections' end
    BlockRequestFifo* replies = nullptr;  // the same
    LoopCall release_call = {.function = &VolumeShard::release_held, .context = this};
  };

  BlockServerOptions options_;
  BlockServerWiring wiring_;
  nbd::ConnectionEnvironment environment_;
  BlockLimits limits_;
  std::vector<Volume> volumes_;
  std::vector<nbd::ExportInfo> exports_;  // one for each volume, contiguous for the handshake
  std::deque<VolumeShard> shards_;
  std::span<std::byte> connection_memory_;
  uint64_t connection_stride_bytes_ = 0;
  StreamAcceptor acceptor_;
  FreeList<&nbd::Connection::next_free> free_;
  nbd::Connection* first_marked_ = nullptr;
  TimeLimit negotiations_;
  StreamLinger lingering_;
};

}  // namespace bedplate
