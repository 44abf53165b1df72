// kvd on one of its shards: the cache of its keys, its gets by message, and its connections.
//
// KvService divides the keys, the memory and the connections over the shards. The parts of a kvd on
// one shard are called "cache:kvd" and so on in the plan; with several shards they have the numbers
// of these, as their connections have (apps/boot/placed_server.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alloc/keyed_cache_datapath.h"
#include "apps/boot/placed_server.h"
#include "apps/kvd/message_gets_datapath.h"
#include "apps/kvd/session_datapath.h"
#include "pinned_pool/plan.h"
#include "platform/counter.h"
#include "platform/result.h"
#include "transport/loop/shard_question_datapath.h"
#include "transport/sockets/stream_server.h"

namespace bedplate {

// The part of kvd that one shard has.
struct KvShare {
  uint32_t number = 0;       // among the shards of kvd: which keys are its own
  uint32_t shard_count = 1;  // of kvd
  uint32_t shard = 0;        // its index among [[shard]]
  uint64_t cache_bytes = 0;
  uint32_t max_connections = 0;

  bool has_others() const noexcept { return shard_count > 1; }
};

// Threads: before the seal the main thread; then the shard's, unless another is named.
class KvShard {
 public:
  KvShard() = default;
  KvShard(const KvShard&) = delete;
  KvShard& operator=(const KvShard&) = delete;

  // The memory of the cache, and that of each connection beside its session
  // (PlacedServerPlan::carves, more_connection_bytes).
  static std::vector<CarvePlan> carves(const KvShare& share);
  static uint64_t more_connection_bytes(uint32_t shard_count) noexcept;
  // Plans all else but the server.
  static void plan(ServicePlan& plan, const KvShare& share);

  // All shards share these. The shard of the limits of listeners writes `limits_on`: 0 if no
  // listener has a limit.
  struct Shared {
    const kvd::Facts& facts;
    kvd::Stats& stats;
    const Counter& limits_on;
  };
  // Makes the cache, and answers messages. Ownership: what is shared outlives this.
  Result<void> create(ServiceContext& context, const KvShare& share, const Shared& shared);
  // Makes the connections, with `options`, and returns their server. `all`: of all shards, by their
  // numbers; they are created. Requires: in the order of the numbers. Ownership: both outlive this.
  Result<StreamServer*> create_server(ServiceContext& context, PlacedServer& servers,
                                      const StreamServerOptions& options,
                                      std::span<const kvd::Environment* const> all);

  const KvShare& share() const noexcept { return share_; }
  kvd::Environment& environment() noexcept { return environment_; }
  kvd::Counters& counters() noexcept { return *environment_.counters; }
  uint64_t memory_bytes() const noexcept { return cache_.memory_bytes(); }
  // Whether other shards still have something of its clients. Threads: any.
  bool is_asking() const noexcept { return asker_ != nullptr && asker_->in_flight() > 0; }

 private:
  void make_waves(std::span<std::byte> memory) noexcept;

  KvShare share_;
  KeyedCache cache_;
  kvd::Environment environment_;
  kvd::Crossing crossing_;
  ShardAsker* asker_ = nullptr;  // nullptr: it asks nobody
  kvd::MessageGets message_gets_{environment_};
};

}  // namespace bedplate
