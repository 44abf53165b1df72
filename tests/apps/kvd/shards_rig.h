// Several shards of a kvd without sockets, for tests: each has a cache, counters and waves. The
// loops are the test's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/kvd/key_owner_datapath.h"
#include "apps/kvd/wave_datapath.h"
#include "platform/units.h"
#include "tests/apps/kvd/kvd_driver.h"
#include "transport/loop/event_loop.h"

namespace bedplate::kvd {

class ShardsRig {
 public:
  static constexpr uint32_t kWaveCount = 16;  // of each shard: as many clients may be made there

  // Ownership: the loops outlive this.
  explicit ShardsRig(const std::vector<EventLoop*>& loops, uint64_t cache_bytes = 1024 * 1024) {
    const auto count = static_cast<uint32_t>(loops.size());
    for (uint32_t i = 0; i < count; ++i) {
      shards_.push_back(std::make_unique<Shard>(cache_bytes));
      counted_.push_back(&shards_[i]->rig.counters);
      environments_.push_back(&shards_[i]->rig.environment);
      facts_.memory_bytes += shards_[i]->rig.cache.memory_bytes();
    }
    facts_.value_bytes_max = 64 * 1024;
    facts_.shard_count = count;
    stats_ = std::make_unique<Stats>(facts_, counted_);
    for (uint32_t i = 0; i < count; ++i) {
      Shard& shard = *shards_[i];
      Environment& environment = shard.rig.environment;
      environment.loop = loops[i];
      environment.facts = &facts_;
      environment.stats = stats_.get();
      environment.crossing = &shard.crossing;
      environment.set_limited(false);
      shard.asker.create(*loops[i], kWaveCount * Wave::question_count(count));
      shard.crossing.shards = environments_;
      shard.crossing.own = i;
      shard.crossing.asker = &shard.asker;
      for (uint32_t wave = 0; wave < kWaveCount; ++wave) {
        shard.parts.push_back(std::make_unique<Wave::Part[]>(count - 1));
        const std::span<Wave::Part> parts(shard.parts.back().get(), count - 1);
        shard.waves.push_back(std::make_unique<Wave>(shard.crossing, parts));
        shard.crossing.spare.push(*shard.waves.back());
      }
    }
  }

  uint32_t count() const { return static_cast<uint32_t>(shards_.size()); }
  CacheRig& shard(uint32_t index) { return shards_[index]->rig; }
  KeyedCache& cache(uint32_t index) { return shards_[index]->rig.cache; }
  Counters& counters(uint32_t index) { return shards_[index]->rig.counters; }
  ShardAsker& asker(uint32_t index) { return shards_[index]->asker; }
  Environment& environment(uint32_t index) { return shards_[index]->rig.environment; }
  void set_time(uint64_t now_ns) {
    for (auto& each : shards_) each->rig.cache.set_time(now_ns);
  }
  // The sum of a counter.
  uint64_t sum(Counter Counters::*counter) const {
    uint64_t all = 0;
    for (const Counters* const each : counted_) all += (each->*counter).read();
    return all;
  }
  // Key number `index` of those that shard `owner` owns.
  std::string key(uint32_t owner, uint32_t index = 0) const {
    for (uint32_t i = 0;; ++i) {
      std::string name = "key" + std::to_string(i);
      if (owner_of(name, count()) == owner && index-- == 0) return name;
    }
  }
  // Whether the present item of this key is not pinned.
  bool is_unpinned(uint32_t index, std::string_view name) {
    CacheItem* const item = cache(index).peek(name);
    return item == nullptr || item->pins == 0;
  }

 private:
  struct Shard {
    explicit Shard(uint64_t cache_bytes) : rig(cache_bytes) {}
    CacheRig rig;
    ShardAsker asker;
    Crossing crossing;
    std::vector<std::unique_ptr<Wave::Part[]>> parts;
    std::vector<std::unique_ptr<Wave>> waves;
  };

  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<const Counters*> counted_;
  std::vector<const Environment*> environments_;
  Facts facts_{.pid = 4711, .connections_max = 256};
  std::unique_ptr<Stats> stats_;
};

}  // namespace bedplate::kvd
