#include "apps/kvd/kv_shard.h"

#include <new>
#include <string>
#include <utility>
#include <vector>

#include <sys/random.h>

#include "apps/boot/service_context.h"
#include "apps/services/service_plan.h"
#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// The owner of a part of the memory: "cache:kvd", of shard number 1 "cache-1:kvd".
OwnerName owner_of_part(const char* part, const KvShare& share) {
  const bool is_first = share.number == 0;
  return OwnerName(is_first ? part : part + ("-" + std::to_string(share.number)), "kvd");
}

// The set of its counters, and the instance of that.
const char* set_of(const KvShare& share) { return share.shard_count == 1 ? "kvd" : "shards"; }
std::string instance_of(const KvShare& share) { return share.shard_count == 1 ? "" : share.name; }

}  // namespace

uint64_t KvShard::wave_bytes(uint32_t shard_count) noexcept {
  return sizeof(kvd::Wave) + (shard_count - 1) * sizeof(kvd::Wave::Part);
}

void KvShard::plan(ServicePlan& plan, const KvShare& share) {
  const uint32_t shard = share.shard;
  std::vector<CarvePlan> carves = {
      {owner_of_part("cache", share), share.cache_bytes},
      {owner_of_part("index", share), KeyedCache::index_bytes(share.cache_bytes)}};
  if (share.max_connections > 0) {
    carves.push_back({owner_of_part("connections", share),
                      StreamServer::bytes_for<kvd::Session>(share.max_connections)});
    plan.connections(shard, share.max_connections, "max_connections");
  }
  if (share.question_count() > 0) {
    carves.push_back(
        {owner_of_part("waves", share), share.max_connections * wave_bytes(share.shard_count)});
    plan.questions(shard, share.question_count());
  }
  const OwnerName segment = share.number == 0 ? OwnerName("kvd") : owner_of_part("shard", share);
  plan.segment(segment, std::move(carves), plan.placement(shard));
  plan.counters<kvd::Counters>(set_of(share), instance_of(share));
  plan.messages(shard);
  plan.sources(shard, 1);
}

Result<void> KvShard::create(ServiceContext& context, const KvShare& share, const kvd::Facts& facts,
                             kvd::Stats& stats) {
  BP_DCHECK(environment_.loop == nullptr);  // once
  share_ = share;
  BP_TRY_ASSIGN(const auto counters,
                context.counters<kvd::Counters>(set_of(share), instance_of(share)));
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
                  .facts = &facts,
                  .stats = &stats,
                  .crossing = share.shard_count > 1 ? &crossing_ : nullptr};
  environment_.set_limited(false);
  message_gets_.create({.messenger = messenger,
                        .question = get,
                        .lent_bytes_max = share.cache_bytes / 8,
                        .dropped = &counters->messages_dropped});
  return context.add_source(share.shard, message_gets_, 64);
}

Result<void> KvShard::create_server(ServiceContext& context, const KvSettings& settings,
                                    std::span<const kvd::Environment* const> all) {
  crossing_.shards = all;
  crossing_.own = share_.number;
  if (!has_server()) return {};
  if (share_.question_count() > 0) {
    BP_TRY_ASSIGN(asker_, context.asker(share_.shard));
    BP_TRY_ASSIGN(const auto waves, context.carve(owner_of_part("waves", share_)));
    crossing_.asker = asker_;
    make_waves(waves);
  }
  BP_TRY_ASSIGN(const auto connections, context.carve(owner_of_part("connections", share_)));
  BP_TRY_ASSIGN(const auto trace, context.trace(share_.shard));
  BP_TRY_ASSIGN(const auto tls, context.tls(share_.shard));
  // On one shard only limits make answers wait.
  const uint64_t answer_ns_max = share_.shard_count > 1 ? StreamServerOptions().answer_ns_max : 0;
  server_.create<kvd::Session>({.name = "kvd",
                                .loop = &context.loop(share_.shard),
                                .sockets = &context.sockets(share_.shard),
                                .counters = &counters().clients,
                                .silence_ns_max = settings.client_timeout_s * kNsPerSecond,
                                .answer_ns_max = answer_ns_max,
                                .trace = trace,
                                .layers = tls},
                               connections, environment_);
  return {};
}

// One for each connection.
void KvShard::make_waves(std::span<std::byte> memory) noexcept {
  using Part = kvd::Wave::Part;
  const uint64_t stride_bytes = wave_bytes(share_.shard_count);
  const uint32_t part_count = share_.shard_count - 1;
  for (; memory.size() >= stride_bytes; memory = memory.subspan(stride_bytes)) {
    auto* const parts = reinterpret_cast<Part*>(memory.data() + sizeof(kvd::Wave));
    for (uint32_t i = 0; i < part_count; ++i) new (parts + i) Part;
    crossing_.spare.push(*new (memory.data())
                             kvd::Wave(crossing_, std::span<Part>(parts, part_count)));
  }
}

bool KvShard::is_drained() const noexcept {
  return !has_server() || (server_.is_drained() && (asker_ == nullptr || asker_->in_flight() == 0));
}

}  // namespace bedplate
