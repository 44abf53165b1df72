// kvd: a key-value service in the memcached text protocol.
//
// Read on: its commands (session_datapath.h), gets by message (message_gets_datapath.h). The
// runtime provides the cache (alloc/keyed_cache_datapath.h), the connections
// (transport/sockets/stream_server.h) and a session's buffers
// (transport/sockets/stream_session_datapath.h).
#pragma once

#include <optional>

#include "alloc/keyed_cache_datapath.h"
#include "apps/kvd/kv_settings.h"
#include "apps/kvd/message_gets_datapath.h"
#include "apps/services/service.h"

namespace bedplate {

class KvService final : public Service {
 public:
  const char* name() const noexcept override { return "kvd"; }
  void describe(ConfigurationTable& table) override { bedplate::describe(table, settings_); }
  Result<void> plan(ServicePlan& plan) override;
  Result<void> create(ServiceContext& context) override;
  void start(uint32_t shard) noexcept override {
    if (shard == settings_.shard) server_.start();
  }
  void request_drain() noexcept override { server_.request_drain(); }
  bool is_drained() const noexcept override { return server_.is_drained(); }

 private:
  KvSettings settings_;
  KeyedCache cache_;
  kvd::Facts facts_;
  std::optional<kvd::Stats> stats_;
  kvd::Environment environment_;
  kvd::MessageGets message_gets_{environment_};
  StreamServer server_;
};

}  // namespace bedplate
