// PlacedServer: the server of a service on the shards that it is placed on, one or many, as one.
//
//     table.shards_or_all("shards", &shards_).help("The shards of its clients.");  // describe()
//     server_.plan<Echo>(plan, {.service = "echo",                                 // plan()
//                               .shards = shards_,
//                               .connection_count = max_connections_,
//                               .connection_key = "max_connections",
//                               .addresses = listen_});
//     return server_.create<Echo>(context, {.name = "echo"}, sites_);              // create()
//     server_.start(shard);                                                        // start()
//     server_.request_drain(), server_.is_drained(), server_.end()
//
// It plans for each shard: the memory of its connections, on its node; the connections; TLS; the
// listeners (ListenTerms::shards); and the counters (ServicePlan::shard_counters). Sessions of a
// shard share an environment, Session(environment), which is the shard's alone. A shard that is
// full gives clients to another one (transport/sockets/stream_servers.h). On one shard all names
// are those of a service that plans a StreamServer by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "apps/boot/service_context.h"
#include "apps/services/service_plan.h"
#include "pinned_pool/owner_name.h"
#include "platform/assert.h"
#include "platform/result.h"
#include "transport/sockets/client_moves.h"
#include "transport/sockets/socket_address.h"
#include "transport/sockets/stream_server.h"
#include "transport/sockets/stream_servers.h"
#include "transport/tls/tls_files.h"

namespace bedplate {

struct PlacedServerPlan {
  std::string service;           // its name
  std::string name = {};         // of one of several servers; empty: the service's only one
  std::vector<uint32_t> shards;  // at least one, each once
  // The sum for all shards; each has its part, rounded up. `connection_key`: the key of the
  // service's table that sets it; nullptr: none does.
  uint32_t connection_count = 1;
  const char* connection_key = nullptr;
  // The key of the addresses, for ServicePlan::listen, with its other arguments; nullptr: the
  // service plans its listeners itself, for the same shards.
  const char* listen_key = "listen";
  std::vector<SocketAddress> addresses = {};
  std::vector<SocketAddress> in_image = {};
  ListenTerms listen_terms = {};
  const TlsFiles* tls = nullptr;  // nullptr: the service has no TLS, or plans it itself
  TlsTerms tls_terms = {};
  const char* counters = nullptr;  // the name of its set of counters; nullptr: the service's name
  uint64_t more_connection_bytes = 0;  // further memory for each connection, a multiple of 64
  // Further carves of the service for each of `shards`, before the connections of that shard and in
  // their segment: a pool has few segments. Empty: none.
  std::vector<std::vector<CarvePlan>> carves = {};
  bool has_words = false;      // StreamServerOptions::refusals has functions
  bool replaces_idle = false;  // as StreamServerOptions
  bool is_traced = false;      // the service plans traces (ServicePlan::trace)
};

// The StreamServerCounters of a struct that is one, or has one as its member `clients`.
template <typename Counters>
StreamServerCounters& clients_of(Counters& counters) noexcept {
  if constexpr (std::is_base_of_v<StreamServerCounters, Counters>) {
    return counters;
  } else {
    return counters.clients;
  }
}

// Threads: the main thread; start() on each shard. Lifetime: the service's. Invariant: at() and
// start() find the server number i on shard number i of the plan. (add)
class PlacedServer {
 public:
  PlacedServer() noexcept = default;
  PlacedServer(const PlacedServer&) = delete;
  PlacedServer& operator=(const PlacedServer&) = delete;

  // ---- In plan() ----

  // Plans all that the server needs. `Counters`: as clients_of() says.
  template <typename Session, typename Counters = StreamServerCounters>
  void plan(ServicePlan& plan, const PlacedServerPlan& what) {
    plan.shard_counters<Counters>(what.counters == nullptr ? what.service.c_str() : what.counters,
                                  what.shards);
    plan_parts(plan, what, StreamServers::bytes_for<Session>(connections_of_each(what)));
  }
  // The same without the counters, for sessions of `bytes` for all connections of a shard
  // (StreamServers::bytes_for).
  void plan_parts(ServicePlan& plan, const PlacedServerPlan& what, uint64_t bytes);
  // How many connections each shard has.
  static uint32_t connections_of_each(const PlacedServerPlan& what) noexcept;

  // ---- In create() ----

  // Creates the servers, with `options` for all: without loop, sockets, counters, layers, trace and
  // moves. environments[i] belongs to the shard number i of the plan, and outlives the server.
  // Functions that `options` names are called on each shard. Errors: those of the context.
  template <typename Session, typename Counters = StreamServerCounters, typename Environments>
  Result<void> create(ServiceContext& context, const StreamServerOptions& options,
                      Environments& environments) {
    for (uint32_t i = 0; i < shards_.size(); ++i) {
      BP_TRY_ASSIGN(Counters* const counters,
                    context.shard_counters<Counters>(counters_.c_str(), shards_[i]));
      BP_TRY_ASSIGN(Place place, take_place(context, i, options));
      place.options.counters = &clients_of(*counters);
      BP_TRY(add<Session>(context, place, environments[i]));
    }
    return {};
  }

  // The part of one shard: for a service that creates its servers one by one.
  struct Place {
    uint32_t shard = 0;
    std::span<std::byte> memory = {};  // of connections, and then what the service has added
    StreamServerOptions options = {};
    MoveCounters* moves = nullptr;
  };
  // Takes that of shard number `index` of the plan. If the service plans TLS itself, `options` has
  // the layers.
  Result<Place> take_place(ServiceContext& context, uint32_t index,
                           const StreamServerOptions& options);
  // Creates its server. Requires: in the order of the plan.
  template <typename Session, typename... Arguments>
  Result<StreamServer*> add(ServiceContext& context, const Place& place, Arguments&... arguments) {
    const uint32_t index = servers_.count();
    BP_ASSERT(index < shards_.size() && shards_[index] == place.shard);
    const auto memory = place.memory.first(StreamServers::bytes_for<Session>(connection_count_));
    StreamServer& made = servers_.add<Session>(place.options, place.moves, memory, arguments...);
    BP_TRY(add_listeners(context, place.shard, made));
    return &made;
  }

  // ---- From then on ----

  // Begins to listen, if the server is on this shard. Threads: the shard's.
  void start(uint32_t shard) noexcept;
  bool is_created() const noexcept { return servers_.count() > 0; }
  // As those of StreamServer, for all shards. Threads: any.
  void request_drain() noexcept { servers_.request_drain(); }
  bool is_drained() const noexcept { return servers_.is_drained(); }
  // Closes clients that are on their way between shards: in Service::stopped().
  void end() noexcept { servers_.end(); }

 private:
  OwnerName owner(uint32_t index) const;
  void plan_memory(ServicePlan& plan, const PlacedServerPlan& what, uint64_t bytes);
  Result<void> add_listeners(ServiceContext& context, uint32_t shard, StreamServer& server);

  std::string service_;
  std::string name_;
  std::string counters_;
  std::string listen_key_;
  std::vector<uint32_t> shards_;
  uint32_t connection_count_ = 0;  // of each shard
  bool has_tls_ = false;
  bool is_traced_ = false;
  StreamServers servers_;
};

}  // namespace bedplate
