// blockd: an NBD server whose volumes lie in the pool, or on stores.
//
// The connections and their sockets run on one shard or on several, each with an object of its own
// (block_connections.h). Each volume has one home: one of these shards or another one. Two lanes
// connect each shard that has connections and each shard that has volumes: one brings requests, the
// other takes replies back. Nothing crosses if both are the same shard.
//
// The first shard of connections has the limits (block_limits.h), and the facts that operators
// change (BlockServerState); the others follow. Connections, request slots, lanes and volumes lie
// in the segments that plan_block_server() asked for: the configuration fixes their number. A
// connection beyond the maximum is closed at once.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/blockd/block_connections.h"
#include "apps/blockd/block_limits.h"
#include "apps/blockd/block_request.h"
#include "apps/blockd/far_limits_datapath.h"
#include "apps/blockd/volume.h"
#include "apps/blockd/volume_datapath.h"
#include "pinned_pool/plan.h"
#include "platform/assert.h"
#include "platform/units.h"
#include "transport/loop/event_loop.h"

namespace bedplate {

struct BlockServerOptions {
  std::vector<VolumePlan> volumes;
  std::vector<LimitPlan> limits = {};  // also those without rates, which may get some later
  uint32_t max_connections = 64;       // on all shards; each has its part, rounded up
  uint32_t requests_per_connection = 64;
  uint64_t handshake_timeout_ns = 10 * kNsPerSecond;
  uint64_t client_timeout_ns = 60 * kNsPerSecond;  // for clients over TCP; 0: no timeout
  // The placement of all memory but the volumes, for each shard of connections; at least one.
  std::vector<Placement> placements = std::vector<Placement>(1);
};

// How many connections each shard has.
uint32_t connections_of_each(const BlockServerOptions& options) noexcept;

// The segments that a server with these options needs: one for the connections of each node, one
// for each volume.
std::vector<SegmentRequest> plan_block_server(const BlockServerOptions& options);

// The volume's name, as it appears in names of owners and counters. A name over 48 bytes is cut
// there and ends in "~" and the volume's index, so it stays unique.
std::string short_volume_name(const BlockServerOptions& options, size_t index);
// The same for the name of a limit, which is unique for its kind.
std::string short_limit_name(const BlockServerOptions& options, size_t index);

// The objects of the shards that a server uses.
struct BlockServerWiring {
  std::vector<ConnectionsWiring> connections = {};  // of each shard that has connections
  std::vector<EventLoop*> volume_loops = {};        // of each shard that has volumes
  std::vector<LimitCounters*> limit_counters = {};  // of each limit of the options
};

class BlockServer {
 public:
  // Hands out the carve that plan_block_server() planned for `owner`.
  using Carve = std::function<Result<std::span<std::byte>>(const OwnerName& owner)>;
  // Fills in the counters of the volume with this index. If the volume's plan has a queue, it also
  // fills in the store and the store's counters.
  using OpenVolume = std::function<Result<void>(size_t index, Volume& volume)>;

  static constexpr uint32_t kConnectionShardsMax = VolumeService::kLanesMax;
  // The budget of one poll of each source_of().
  static constexpr uint32_t kVolumeBudget = 64;

  BlockServer() = default;
  BlockServer(const BlockServer&) = delete;
  BlockServer& operator=(const BlockServer&) = delete;

  // Takes the memory that plan_block_server asked for, and opens the volumes. The caller adds
  // source_of(N) to the N-th loop of the volumes, then far_limits(N) to the first loop of the
  // connections, then connections(N) to the N-th. The first loop of the connections has timers for
  // BlockLimits::timer_count(). Called once. Requires: the pool is not sealed; `wiring` has a loop
  // for each shard number in the volumes' plans, and connections for each of
  // BlockServerOptions::placements; its parts outlive this. Errors: those of `carve` and
  // `open_volume`.
  Result<void> create(const Carve& carve, const OpenVolume& open_volume,
                      const BlockServerOptions& options, const BlockServerWiring& wiring);
  PollSource& source_of(uint32_t shard) noexcept { return shards_[shard].service; }

  // Those of each shard that has connections; the first has the limits.
  uint32_t connections_count() const noexcept { return 1 + static_cast<uint32_t>(more_.size()); }
  BlockConnections& connections(uint32_t index) noexcept {
    BP_DCHECK(index < connections_count());
    return index == 0 ? first_ : *more_[index - 1];
  }
  // The limits' end for connections(index). Requires: `index` is over 0.
  FarLimits& far_limits(uint32_t index) noexcept {
    BP_DCHECK(index > 0 && index < connections_count());
    return *far_limits_[index - 1];
  }

  // Stops listening, releases the held requests of all volumes, and lets every connection finish
  // the requests that it has taken. A connection that still negotiates is broken off. Threads: any.
  void request_drain() noexcept;
  // True when the drain is complete: no connection is open on any shard. Threads: any.
  bool is_drained() const noexcept;
  // Closes clients that are on their way between shards. After the loops of all shards have run.
  void end() noexcept;

  // ---- While it runs: calls for the control socket ----

  // The index of the volume of this name; nothing: no volume has this name. Threads: any.
  std::optional<size_t> find_volume(std::string_view name) const noexcept;
  // All volumes, by their indices; each field names its threads.
  std::span<Volume> volumes() noexcept { return volumes_; }
  // The loop of the first shard of connections.
  EventLoop& connections_loop() noexcept { return first_.loop(); }
  EventLoop& volume_loop(size_t volume) noexcept {
    BP_DCHECK(volume < volumes_.size());
    return *wiring_.volume_loops[volumes_[volume].plan->shard];
  }

  // Whether clients' writes are refused. Threads: any.
  bool is_read_only(size_t volume) const noexcept {
    BP_DCHECK(volume < volumes_.size());
    return volumes_[volume].is_read_only.load(std::memory_order_relaxed);
  }
  // Takes effect with the next request of each client of the first shard, and soon with those of
  // others: before a call that is submitted to their loop afterwards. Requires: a volume whose plan
  // is read_only stays read-only. Threads: the first shard of connections.
  void set_read_only(size_t volume, bool is_read_only) noexcept;
  // Whether new clients are served. If not, their connections are closed at once. A drain ends it
  // for good. Threads: the first shard of connections; others follow as above.
  bool is_accepting() const noexcept { return first_.is_accepting(); }
  void set_accepting(bool is_accepting) noexcept;

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
  // Changes one of limits(); takes effect with the next request, and for those that wait; on other
  // shards soon, where limits begin or end. Requires: the server does not drain. Threads: the first
  // shard of connections.
  void set_limit(RequestLimit& limit, const LimitRates& rates) noexcept;

  // Adds up the counters of volumes that several shards of connections have. Threads: one at a
  // time, which alone writes the sums.
  void add_up_counters() noexcept;

 private:
  // A shard that has volumes.
  struct VolumeShard {
    VolumeShard(BlockServer& its_server, uint32_t its_number) noexcept
        : server(its_server), number(its_number) {}
    static void release_held(void* shard) noexcept;

    BlockServer& server;
    const uint32_t number;
    VolumeService service;
    std::vector<VolumeLanes> lanes = {};  // to each shard of connections
    LoopCall release_call = {.function = &VolumeShard::release_held, .context = this};
  };
  // The memory of a shard's connections.
  struct ConnectionsMemory {
    std::span<std::byte> connections;
    std::span<std::byte> discard;
  };

  uint32_t planned_count() const noexcept {
    return static_cast<uint32_t>(options_.placements.size());
  }
  Result<void> take_memory(const Carve& carve);
  Result<void> make_shards(const Carve& carve);
  Result<void> make_far_limits(const Carve& carve);
  Result<void> add_volumes(const Carve& carve, const OpenVolume& open_volume);
  void make_connections();
  void follow_all() noexcept;

  BlockServerOptions options_;
  BlockServerWiring wiring_;
  BlockServerState state_;
  BlockLimits limits_;
  std::vector<Volume> volumes_;
  std::deque<VolumeShard> shards_;
  std::vector<ConnectionsMemory> memory_;               // of each shard of connections
  std::vector<std::vector<ConnectionLanes>> lanes_;     // of each, to each of shards_
  std::vector<std::unique_ptr<FarLimits>> far_limits_;  // of each but the first
  BlockConnections first_;
  std::vector<std::unique_ptr<BlockConnections>> more_;
};

}  // namespace bedplate
