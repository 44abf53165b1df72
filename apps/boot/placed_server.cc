#include "apps/boot/placed_server.h"

#include <algorithm>
#include <utility>

#include "platform/assert.h"
#include "transport/sockets/refused_clients.h"

namespace bedplate {
namespace {

constexpr const char* kMoveCounters = "moves";  // the name of their set

}  // namespace

uint32_t PlacedServer::connections_of_each(const PlacedServerPlan& what) noexcept {
  const auto shard_count = std::max<uint64_t>(what.shards.size(), 1);
  return static_cast<uint32_t>((what.connection_count + shard_count - 1) / shard_count);
}

// The carve of a shard: "connections:echo"; "connections-1:echo", by the number of the shard, if
// there are several.
OwnerName PlacedServer::owner(uint32_t index) const {
  const std::string what = name_.empty() ? "connections" : name_;
  if (shards_.size() == 1) return OwnerName(what, service_);
  return OwnerName(what + "-" + std::to_string(shards_[index]), service_);
}

// A segment for each node: a pool has few segments. The first has the name of a service on one
// shard.
void PlacedServer::plan_memory(ServicePlan& plan, const PlacedServerPlan& what, uint64_t bytes) {
  BP_REQUIRE(what.carves.empty() || what.carves.size() == shards_.size(),
             "service %s plans carves for %zu of %zu shards: PlacedServerPlan::carves",
             service_.c_str(), what.carves.size(), shards_.size());
  std::vector<Placement> placements;
  std::vector<std::vector<CarvePlan>> carves;
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    const Placement placement = plan.placement(shards_[i]);
    const auto same =
        std::find_if(placements.begin(), placements.end(),
                     [&](const Placement& other) { return other.node == placement.node; });
    const auto which = static_cast<size_t>(same - placements.begin());
    if (same == placements.end()) {
      placements.push_back(placement);
      carves.emplace_back();
    }
    std::vector<CarvePlan>& its = carves[which];
    if (!what.carves.empty()) its.insert(its.end(), what.carves[i].begin(), what.carves[i].end());
    its.push_back({owner(i), bytes + connection_count_ * what.more_connection_bytes});
  }
  for (size_t i = 0; i < carves.size(); ++i) {
    OwnerName segment = name_.empty() ? OwnerName(service_) : OwnerName(name_, service_);
    if (i > 0) {
      const std::string node = "node-" + std::to_string(placements[i].node);
      segment = OwnerName(name_.empty() ? node : name_ + "-" + node, service_);
    }
    plan.segment(segment, std::move(carves[i]), placements[i]);
  }
}

void PlacedServer::plan_parts(ServicePlan& plan, const PlacedServerPlan& what, uint64_t bytes) {
  BP_REQUIRE(!what.shards.empty(), "service %s plans a server on no shard: PlacedServer::plan",
             what.service.c_str());
  service_ = what.service;
  name_ = what.name;
  counters_ = what.counters == nullptr ? what.service : what.counters;
  listen_key_ = what.listen_key == nullptr ? "" : what.listen_key;
  shards_ = what.shards;
  connection_count_ = connections_of_each(what);
  has_tls_ = what.tls != nullptr;
  is_traced_ = what.is_traced;
  const bool are_several = shards_.size() > 1;
  plan_memory(plan, what, bytes);
  const uint32_t refused_count = what.has_words ? RefusedClients::kCountMax : 0;
  const uint32_t descriptor_count = (what.replaces_idle ? StreamServer::kSuccessorsMax : 0) +
                                    (are_several ? ClientMoves::kSlotCount : 0);
  for (const uint32_t shard : shards_) {
    plan.connections(shard, connection_count_ + refused_count, what.connection_key);
    if (descriptor_count > 0) plan.descriptors(descriptor_count, nullptr);
    if (what.tls == nullptr) continue;
    TlsTerms terms = what.tls_terms;
    if (are_several && shard < plan.configuration().shards.size()) {
      terms.counters = plan.configuration().shards[shard].name;
      terms.are_summed = true;
    }
    plan.tls(shard, connection_count_, *what.tls, terms);
  }
  if (are_several) plan.shard_counters<MoveCounters>(kMoveCounters, shards_);
  if (what.listen_key == nullptr) return;
  ListenTerms terms = what.listen_terms;
  terms.shards = shards_;
  plan.listen(what.listen_key, what.addresses, what.in_image, terms);
}

Result<PlacedServer::Place> PlacedServer::take_place(ServiceContext& context, uint32_t index,
                                                     const StreamServerOptions& options) {
  BP_ASSERT(index < shards_.size());
  Place place;
  place.shard = shards_[index];
  place.options = options;
  place.options.loop = &context.loop(place.shard);
  place.options.sockets = &context.sockets(place.shard);
  BP_TRY_ASSIGN(place.memory, context.carve(owner(index)));
  if (has_tls_) {
    BP_TRY_ASSIGN(place.options.layers, context.tls(place.shard));
  }
  if (is_traced_) {
    BP_TRY_ASSIGN(place.options.trace, context.trace(place.shard));
  }
  if (shards_.size() > 1) {
    BP_TRY_ASSIGN(place.moves, context.shard_counters<MoveCounters>(kMoveCounters, place.shard));
  }
  return place;
}

Result<void> PlacedServer::add_listeners(ServiceContext& context, uint32_t shard,
                                         StreamServer& server) {
  if (listen_key_.empty()) return {};
  BP_TRY_ASSIGN(const auto listening, context.listeners(listen_key_, shard));
  for (const Fd& socket : listening) server.add_listener(socket.number());
  return {};
}

void PlacedServer::start(uint32_t shard) noexcept {
  for (uint32_t i = 0; i < servers_.count(); ++i) {
    if (shards_[i] == shard) servers_.at(i).start();
  }
}

}  // namespace bedplate
