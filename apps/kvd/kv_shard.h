// kvd on one of its shards: the cache of its keys, its gets by message, and its connections.
//
// KvService divides the keys, the memory and the connections over the shards. A kvd on one shard is
// called "kvd" in plan and counters. With several shards, counters have the names of the shards,
// and memory their numbers, but for that of the first one: so [[process]] read = ["kvd"] means the
// shard that processes reach.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "alloc/keyed_cache_datapath.h"
#include "apps/kvd/kv_settings.h"
#include "apps/kvd/message_gets_datapath.h"
#include "apps/kvd/session_datapath.h"
#include "platform/result.h"
#include "transport/loop/shard_question_datapath.h"
#include "transport/sockets/stream_server.h"

namespace bedplate {

class ServiceContext;
class ServicePlan;

// The part of kvd that one shard has.
struct KvShare {
  uint32_t number = 0;       // among the shards of kvd: which keys are its own
  uint32_t shard_count = 1;  // of kvd
  uint32_t shard = 0;        // its index among [[shard]]
  std::string name;          // the name of that
  uint64_t cache_bytes = 0;
  uint32_t max_connections = 0;  // 0: no client connects to it

  // Each connection may ask each other shard at once.
  uint32_t question_count() const noexcept { return max_connections * (shard_count - 1); }
};

// Threads: before the seal the main thread; then the shard's.
class KvShard {
 public:
  KvShard() = default;
  KvShard(const KvShard&) = delete;
  KvShard& operator=(const KvShard&) = delete;

  // Plans all but TLS.
  static void plan(ServicePlan& plan, const KvShare& share);

  // Makes the cache, and answers messages. `facts` and `stats`, of all shards, outlive this.
  Result<void> create(ServiceContext& context, const KvShare& share, const kvd::Facts& facts,
                      kvd::Stats& stats);
  // Makes the connections, if it has some. `all`: of all shards, by their numbers; they are
  // created. Ownership: outlives this.
  Result<void> create_server(ServiceContext& context, const KvSettings& settings,
                             std::span<const kvd::Environment* const> all);

  bool has_server() const noexcept { return share_.max_connections > 0; }
  StreamServer& server() noexcept { return server_; }
  const KvShare& share() const noexcept { return share_; }
  kvd::Environment& environment() noexcept { return environment_; }
  kvd::Counters& counters() noexcept { return *environment_.counters; }
  uint64_t memory_bytes() const noexcept { return cache_.memory_bytes(); }
  // Whether no connection is left after request_drain(), and nothing of theirs is on another shard.
  // Threads: any.
  bool is_drained() const noexcept;

 private:
  static uint64_t wave_bytes(uint32_t shard_count) noexcept;
  void make_waves(std::span<std::byte> memory) noexcept;

  KvShare share_;
  KeyedCache cache_;
  kvd::Environment environment_;
  kvd::Crossing crossing_;
  ShardAsker* asker_ = nullptr;  // nullptr: it asks nobody
  kvd::MessageGets message_gets_{environment_};
  StreamServer server_;
};

}  // namespace bedplate
