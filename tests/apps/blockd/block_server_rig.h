// A whole block server in the process of the test: its pool, one or two shards with real sockets,
// and ways to connect to it. Peers are threads of the same process, so sanitizers see all sides.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include <netinet/in.h>
#include <sys/un.h>

#include "apps/blockd/block_server.h"
#include "tests/apps/blockd/nbd_peer.h"
#include "tests/support/pool_fixture.h"

namespace bedplate::test {

struct RigVariant {
  bool uring = false;
  bool two_shards = false;
};

// A thread with a loop and a socket backend. Like the appliance's, without its pinning.
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
  void run(BlockServer* server_to_start) {
    server_ = server_to_start;
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
    set(made ? State::kReady : State::kFailed);
    if (!made) return;
    state_.wait(State::kReady);
    if (state_ == State::kAbandoned) return;
    if (server_ != nullptr) server_->start();
    loop.run();
  }

  std::thread thread_;
  std::atomic<State> state_{State::kStarting};
  BlockServer* server_ = nullptr;
};

class BlockServerRig {
 public:
  BlockServerRig() = default;
  BlockServerRig(const BlockServerRig&) = delete;
  BlockServerRig& operator=(const BlockServerRig&) = delete;

  // Returns whether the backend is available here; anything else that fails is an assertion.
  bool start(const BlockServerOptions& options, const RigVariant& variant) {
    for (const SegmentRequest& request : plan_block_server(options)) {
      uint64_t bytes = 0;
      for (const CarvePlan& carve : request.carves) bytes += carve.bytes;
      auto made =
          pool->create_segment(request.owner, align_up(bytes, 4 * kKiB), PageSize::k4KiB, 1);
      BP_ASSERT(made.ok());
    }
    if (!connections.create(variant.uring)) return false;
    if (variant.two_shards && !volumes.create(variant.uring)) return false;
    EventLoop& volumes_loop = variant.two_shards ? volumes.loop : connections.loop;
    const auto carve = [&](const OwnerName& owner) { return carve_planned(options, owner); };
    const auto made = server.create(carve, options,
                                    {&connections.loop, connections.sockets.get(), &volumes_loop,
                                     &connection_counters, &volume_counters});
    BP_ASSERT(made.ok());
    volumes_loop.add_source(server.volumes(), BlockServer::kVolumeBudget);
    connections.loop.add_source(server, BlockServer::kReplyBudget);
    connections.loop.timers().reserve_more(options.max_connections);
    listen_unix();
    listen_tcp();
    server.add_listener(unix_listener_.number());
    server.add_listener(tcp_listener_.number());
    if (variant.two_shards) volumes.run(nullptr);
    connections.run(&server);
    is_running_ = true;
    return true;
  }

  // Drains and stops. Returns whether everything was drained in time. All peers must have gone.
  bool stop() {
    bool drained = true;
    if (is_running_) {
      server.request_drain();
      drained = eventually([this] { return server.is_drained(); });
    }
    is_running_ = false;
    connections.stop();
    volumes.stop();
    return drained;
  }

  NbdPeer connect() { return connect_to(AF_UNIX, &unix_address_, unix_address_bytes_); }
  NbdPeer connect_tcp() { return connect_to(AF_INET, &tcp_address_, sizeof tcp_address_); }

  bool has_open(uint64_t count) {
    return eventually([&] { return connection_counters.connections_open.read() == count; });
  }

  TestPool pool;
  RigShard connections;
  RigShard volumes;
  BlockServer server;
  ConnectionCounters connection_counters;
  VolumeCounters volume_counters;

 private:
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
    // An address without a name: the system chooses one that is no file.
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
  Fd unix_listener_;
  sockaddr_un unix_address_ = {};
  socklen_t unix_address_bytes_ = 0;
  Fd tcp_listener_;
  sockaddr_in tcp_address_ = {};
};

}  // namespace bedplate::test
