// kvd: a key-value service in the memcached text protocol, as a service of the runtime.
//
// Read on: the store (store_datapath.h), a line (command_datapath.h), a client's session without a
// socket (session_datapath.h), gets by message (message_gets_datapath.h). Here is what ties them to
// a shard.
#pragma once

#include <atomic>

#include "apps/boot/service.h"
#include "apps/kvd/message_gets_datapath.h"
#include "apps/kvd/session_datapath.h"
#include "transport/stream_sockets.h"

namespace bedplate {

class KvService final : public Service {
 public:
  const char* name() const noexcept override { return "kvd"; }
  void describe(ConfigurationTable& table) override;
  Result<void> plan(ServicePlan& plan) override;
  Result<void> create(ServiceContext& context) override;
  void start(uint32_t shard) noexcept override;
  void request_drain() noexcept override { loop_->submit(drain_call_); }
  bool is_drained() const noexcept override { return is_drained_.load(std::memory_order_acquire); }

 private:
  struct Connection;
  static constexpr uint32_t kListenersMax = 8;

  void accept(int fd) noexcept;
  void advance(Connection& connection) noexcept;
  void close(Connection& connection) noexcept;
  void drain() noexcept;

  // ---- [kvd] ----
  std::vector<SocketAddress> listen_;
  std::vector<SocketAddress> image_listen_;
  uint32_t shard_ = 0;
  uint64_t cache_bytes_ = 64 * kMiB;
  uint64_t value_bytes_max_ = kMiB;
  uint32_t max_connections_ = 256;
  uint32_t client_timeout_s_ = 60;

  EventLoop* loop_ = nullptr;
  StreamSockets* sockets_ = nullptr;
  kvd::Counters* counters_ = nullptr;
  kvd::Store store_;
  kvd::SessionEnvironment environment_;
  kvd::MessageGets message_gets_;
  std::span<Connection> connections_;
  Connection* free_ = nullptr;
  uint32_t open_count_ = 0;
  StreamListener listeners_[kListenersMax];
  uint32_t listener_count_ = 0;
  LoopCall drain_call_ = {
      .function = [](void* self) noexcept { static_cast<KvService*>(self)->drain(); },
      .context = this};
  bool is_draining_ = false;
  std::atomic<bool> is_drained_{false};
};

}  // namespace bedplate
