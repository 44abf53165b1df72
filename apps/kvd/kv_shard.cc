#include "apps/kvd/kv_shard.h"

#include <new>
#include <string>

#include <sys/random.h>

#include "apps/boot/service_context.h"
#include "apps/services/service_plan.h"
#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {
namespace {

// The owner of a part of the memory: "cache:kvd"; "cache-1:kvd", by the number of the shard, if
// there are several.
OwnerName owner_of_part(const char* part, const KvShare& share) {
  return OwnerName(share.has_others() ? part + ("-" + std::to_string(share.shard)) : part, "kvd");
}

}  // namespace

std::vector<CarvePlan> KvShard::carves(const KvShare& share) {
  return {{owner_of_part("cache", share), share.cache_bytes},
          {owner_of_part("index", share), KeyedCache::index_bytes(share.cache_bytes)}};
}

uint64_t KvShard::more_connection_bytes(uint32_t shard_count) noexcept {
  return shard_count == 1 ? 0 : sizeof(kvd::Wave) + (shard_count - 1) * sizeof(kvd::Wave::Part);
}

void KvShard::plan(ServicePlan& plan, const KvShare& share) {
  if (share.has_others()) {
    plan.questions(share.shard,
                   share.max_connections * kvd::Wave::question_count(share.shard_count));
  }
  plan.messages(share.shard);
  plan.sources(share.shard, 1);
}

Result<void> KvShard::create(ServiceContext& context, const KvShare& share, const Shared& shared) {
  BP_DCHECK(environment_.loop == nullptr);  // once
  share_ = share;
  BP_TRY_ASSIGN(const auto counters, context.shard_counters<kvd::Counters>("kvd", share.shard));
  BP_TRY_ASSIGN(const auto cache, context.carve(owner_of_part("cache", share)));
  BP_TRY_ASSIGN(const auto index, context.carve(owner_of_part("index", share)));
  BP_TRY_ASSIGN(const auto messenger, context.messenger(share.shard));
  BP_TRY_ASSIGN(const auto get, context.message("get"));
  uint64_t seed = monotonic_ns();
  (void)getrandom(&seed, sizeof seed, GRND_NONBLOCK);
  cache_.create({.memory = cache,
                 .index = index,
                 .seed = seed,
                 .key_offset_bytes = kvd::kValueWord.size(),
                 .counters = &counters->cache});
  environment_ = {.loop = &context.loop(share.shard),
                  .cache = &cache_,
                  .counters = counters,
                  .facts = &shared.facts,
                  .stats = &shared.stats,
                  .crossing = share.has_others() ? &crossing_ : nullptr,
                  .limits_on = share.has_others() ? &shared.limits_on : nullptr};
  environment_.set_limited(false);
  message_gets_.create({.messenger = messenger,
                        .question = get,
                        .lent_bytes_max = share.cache_bytes / 8,
                        .dropped = &counters->messages_dropped});
  return context.add_source(share.shard, message_gets_, 64);
}

Result<StreamServer*> KvShard::create_server(ServiceContext& context, PlacedServer& servers,
                                             const StreamServerOptions& options,
                                             std::span<const kvd::Environment* const> all) {
  BP_TRY_ASSIGN(PlacedServer::Place place, servers.take_place(context, share_.number, options));
  BP_ASSERT(place.shard == share_.shard);
  place.options.counters = &counters().clients;
  if (share_.has_others()) {
    BP_TRY_ASSIGN(asker_, context.asker(share_.shard));
    crossing_.shards = all;
    crossing_.own = share_.number;
    crossing_.asker = asker_;
    // The sessions take them.
    make_waves(
        place.memory.subspan(StreamServers::bytes_for<kvd::Session>(share_.max_connections)));
  }
  return servers.add<kvd::Session>(context, place, environment_);
}

// One for each connection.
void KvShard::make_waves(std::span<std::byte> memory) noexcept {
  using Part = kvd::Wave::Part;
  const uint64_t stride_bytes = more_connection_bytes(share_.shard_count);
  const uint32_t part_count = share_.shard_count - 1;
  for (; memory.size() >= stride_bytes; memory = memory.subspan(stride_bytes)) {
    auto* const parts = reinterpret_cast<Part*>(memory.data() + sizeof(kvd::Wave));
    for (uint32_t i = 0; i < part_count; ++i) new (parts + i) Part;
    crossing_.spare.push(*new (memory.data())
                             kvd::Wave(crossing_, std::span<Part>(parts, part_count)));
  }
}

}  // namespace bedplate
