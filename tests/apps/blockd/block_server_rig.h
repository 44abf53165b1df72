// A whole block server in the test's process: its pool, one or two shards with real sockets, and
// functions to connect to it. Peers run in this process, too, so sanitizers see all sides. With two
// BlockServerOptions::placements both shards have connections, and clients of either listener are
// spread: the first one stays on the shard of the listener, the next one goes to the other.
#pragma once

#include <atomic>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/un.h>
#include <unistd.h>

#include "apps/blockd/block_server.h"
#include "apps/blockd/stores/file_store.h"
#include "tests/apps/blockd/nbd_peer.h"
#include "tests/support/patience.h"
#include "tests/support/pool_fixture.h"
#include "transport/files/file_thread.h"
#include "transport/files/files.h"

namespace bedplate::test {

struct RigVariant {
  bool uring = false;
  bool two_shards = false;
  bool on_both = false;  // volumes run on both shards in turn, not only on the volumes' shard
};

// A thread with a loop and a socket backend, like a shard of the appliance, but not pinned.
class RigShard {
 public:
  ~RigShard() { stop(); }

  // Returns whether the backend could be made.
  bool create(bool uring) {
    EventLoopOptions options;
    options.spin_ns = 20 * kNsPerUs;
    if (!loop.create(options).ok()) return false;
    thread_ = std::thread([this, uring] { thread_main(uring); });
    state_.wait(State::kStarting);
    return state_ == State::kReady;
  }
  // `to_start`: the connections that live here; nullptr: none.
  void run(BlockConnections* to_start) {
    connections_ = to_start;
    set(State::kRunning);
  }
  void stop() {
    if (!thread_.joinable()) return;
    if (state_ == State::kReady) set(State::kAbandoned);
    loop.stop();
    thread_.join();
    sockets.reset();
  }

  EventLoop loop;
  SocketCounters counters;
  std::unique_ptr<StreamSockets> sockets;
  std::vector<FileOptions> file_options;  // set before create()
  Files files;

 private:
  enum class State { kStarting, kReady, kFailed, kRunning, kAbandoned };
  void set(State state) {
    state_ = state;
    state_.notify_all();
  }
  void thread_main(bool uring) {
    sockets = uring ? make_uring_sockets() : make_epoll_sockets();
    StreamSocketsOptions options;
    options.socket_count_max = 16;
    options.loop = &loop;
    options.counters = &counters;
    const bool made = sockets->create(options).ok();
    if (made) {
      loop.add_source(*sockets, 256);
      loop.set_sleeper(*sockets);
    }
    if (made && !file_options.empty()) open_files();
    set(made ? State::kReady : State::kFailed);
    if (!made) return;
    state_.wait(State::kReady);
    if (state_ != State::kAbandoned) {
      if (connections_ != nullptr) connections_->start();
      loop.run();
    }
    files.close(kPatienceNs);
  }
  void open_files() {
    FileBackend* ring = sockets->file_backend();
    file_thread_ = std::make_unique<FileThread>(loop);
    loop.add_source(*file_thread_, 64);
    FileBackend& backend = ring != nullptr ? *ring : *file_thread_;
    const bool opened =
        files.open(file_options, backend, keys_, ring != nullptr ? file_thread_.get() : nullptr)
            .ok();
    BP_ASSERT(opened);
  }

  std::unique_ptr<FileThread> file_thread_;
  KeyTable keys_;
  std::thread thread_;
  std::atomic<State> state_{State::kStarting};
  BlockConnections* connections_ = nullptr;
};

class BlockServerRig {
 public:
  BlockServerRig() = default;
  BlockServerRig(const BlockServerRig&) = delete;
  BlockServerRig& operator=(const BlockServerRig&) = delete;

  // Returns whether the backend is available here. Asserts that all other steps succeed.
  bool start(const BlockServerOptions& options, const RigVariant& variant) {
    for (const SegmentRequest& request : plan_block_server(options)) {
      uint64_t bytes = 0;
      for (const CarvePlan& carve : request.carves) bytes += carve.bytes;
      auto made =
          pool->create_segment(request.owner, align_up(bytes, 4 * kKiB), PageSize::k4KiB, 1);
      BP_ASSERT(made.ok());
    }
    std::vector<RigShard*> shards;
    if (variant.two_shards) shards.push_back(&volumes);
    if (!variant.two_shards || (variant.on_both && options.volumes.size() > 1)) {
      shards.push_back(&connections);
    }
    make_files(options, shards);
    if (!connections.create(variant.uring)) return false;
    if (variant.two_shards && !volumes.create(variant.uring)) return false;
    const auto carve = [&](const OwnerName& owner) { return carve_planned(options, owner); };
    trace_ring.create(trace_records);
    BlockServerWiring wiring;
    wiring.connections.push_back({.loop = &connections.loop,
                                  .sockets = connections.sockets.get(),
                                  .counters = &connection_counters,
                                  .trace = TraceWriter(&trace_ring, 0)});
    if (options.placements.size() == 2) add_second_shard(options, wiring);
    for (RigShard* shard : shards) wiring.volume_loops.push_back(&shard->loop);
    limit_counters = std::vector<LimitCounters>(options.limits.size());
    for (LimitCounters& each : limit_counters) wiring.limit_counters.push_back(&each);
    const auto open_volume = [&](size_t, Volume& volume) {
      volume.counters = &volume_counters;
      if (!volume.plan->queue.has_value()) return Result<void>();
      File& file = *shards[volume.plan->shard]->files.find(volume.plan->name);
      volume.store = std::make_unique<FileStore>(file, 0);
      volume.store_counters = &store_counters;
      return Result<void>();
    };
    const auto made = server.create(carve, open_volume, options, wiring);
    BP_ASSERT(made.ok());
    for (uint32_t i = 0; i < shards.size(); ++i) {
      shards[i]->loop.add_source(server.source_of(i), BlockServer::kVolumeBudget);
    }
    BlockConnections& first = server.connections(0);
    const bool has_second = server.connections_count() == 2;
    if (has_second) {
      connections.loop.add_source(server.far_limits(1), FarLimits::kBudget);
      volumes.loop.add_source(server.connections(1), BlockConnections::kReplyBudget);
    }
    connections.loop.add_source(first, BlockConnections::kReplyBudget);
    connections.loop.timers().reserve_more(BlockLimits::timer_count(options.limits));
    listen_unix();
    listen_tcp();
    first.add_listener(unix_listener_.number(), server.limits().find(LimitKind::kListener, "unix"));
    first.add_listener(tcp_listener_.number());
    if (variant.two_shards) volumes.run(has_second ? &server.connections(1) : nullptr);
    connections.run(&first);
    is_running_ = true;
    return true;
  }

  // Drains and stops the server. Returns whether the drain ended in time. Requires: all peers have
  // disconnected.
  bool stop() {
    bool drained = true;
    if (is_running_) {
      server.request_drain();
      drained = eventually([this] { return server.is_drained(); });
    }
    is_running_ = false;
    connections.stop();
    volumes.stop();
    server.end();
    return drained;
  }

  NbdPeer connect() { return connect_to(AF_UNIX, &unix_address_, unix_address_bytes_); }
  NbdPeer connect_tcp() { return connect_to(AF_INET, &tcp_address_, sizeof tcp_address_); }

  bool has_open(uint64_t count) {
    return eventually([&] { return connection_counters.connections_open.read() == count; });
  }

  TraceRecord trace_records[16];  // of the last requests
  TraceRing trace_ring;
  TestPool pool;
  RigShard connections;
  RigShard volumes;
  BlockServer server;
  nbd::ConnectionCounters connection_counters;
  VolumeCounters volume_counters;
  StoreCounters store_counters;
  std::vector<LimitCounters> limit_counters;  // of the limits of the options

  // With two shards of connections: those of the second, and of both. All volumes share a part.
  nbd::ConnectionCounters second_counters;
  MoveCounters move_counters[2];
  nbd::LaneCounters lane_counters[2];
  VolumeRequestCounters volume_parts[2];

  // The size of the file of each volume with a queue. The files have no names.
  static constexpr uint64_t kFileBytes = 2 * kMiB;

 private:
  // The shard of the volumes has connections, too.
  void add_second_shard(const BlockServerOptions& options, BlockServerWiring& wiring) {
    wiring.connections.push_back(
        {.loop = &volumes.loop, .sockets = volumes.sockets.get(), .counters = &second_counters});
    for (size_t i = 0; i < 2; ++i) {
      ConnectionsWiring& each = wiring.connections[i];
      each.moves = &move_counters[i];
      each.lanes = &lane_counters[i];
      each.volumes.assign(options.volumes.size(), &volume_parts[i]);
    }
  }
  void make_files(const BlockServerOptions& options, const std::vector<RigShard*>& shards) {
    for (const VolumePlan& volume : options.volumes) {
      if (!volume.queue.has_value()) continue;
      char path[] = "/tmp/bedplate-volume-XXXXXX";
      Fd& fd = file_fds_.emplace_back(mkostemp(path, O_CLOEXEC));
      unlink(path);
      const bool is_sized = ftruncate(fd.number(), kFileBytes) == 0;
      BP_ASSERT(is_sized);
      shards[volume.shard]->file_options.push_back({.name = volume.name,
                                                    .fd = fd.number(),
                                                    .operation_count_max = volume.queue->task_count,
                                                    .bytes = kFileBytes,
                                                    .tells_extents = true,
                                                    .counters = &file_counters_});
    }
  }
  Result<std::span<std::byte>> carve_planned(const BlockServerOptions& options,
                                             const OwnerName& owner) {
    for (const SegmentRequest& request : plan_block_server(options)) {
      for (const CarvePlan& each : request.carves) {
        if (!(each.owner == owner)) continue;
        return pool->carve(*pool->find_segment(request.owner), owner, each.bytes);
      }
    }
    return Error{};
  }
  void listen_unix() {
    unix_listener_ = Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    unix_address_.sun_family = AF_UNIX;
    // Binds without a name: the kernel chooses an abstract address, which is no file.
    const bool listens = bind(unix_listener_.number(), reinterpret_cast<sockaddr*>(&unix_address_),
                              sizeof(sa_family_t)) == 0 &&
                         listen(unix_listener_.number(), 64) == 0;
    unix_address_bytes_ = sizeof unix_address_;
    const bool named =
        getsockname(unix_listener_.number(), reinterpret_cast<sockaddr*>(&unix_address_),
                    &unix_address_bytes_) == 0;
    BP_ASSERT(listens && named);
  }
  void listen_tcp() {
    tcp_listener_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    tcp_address_.sin_family = AF_INET;
    tcp_address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof tcp_address_;
    auto* address = reinterpret_cast<sockaddr*>(&tcp_address_);
    const bool listens = bind(tcp_listener_.number(), address, bytes) == 0 &&
                         listen(tcp_listener_.number(), 64) == 0 &&
                         getsockname(tcp_listener_.number(), address, &bytes) == 0;
    BP_ASSERT(listens);
  }
  static NbdPeer connect_to(int family, const void* address, socklen_t bytes) {
    Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const bool connected =
        ::connect(fd.number(), static_cast<const sockaddr*>(address), bytes) == 0;
    return connected ? NbdPeer(std::move(fd)) : NbdPeer();
  }

  bool is_running_ = false;
  std::deque<Fd> file_fds_;
  FileCounters file_counters_;
  Fd unix_listener_;
  sockaddr_un unix_address_ = {};
  socklen_t unix_address_bytes_ = 0;
  Fd tcp_listener_;
  sockaddr_in tcp_address_ = {};
};

}  // namespace bedplate::test
