// Tested by tests/apps/boot/appliance_plan_test.cc, tests/system/transmission_test.py.
#include "apps/blockd/block_service.h"

#include "apps/boot/service_context.h"
#include "apps/boot/service_plan.h"
#include "pinned_pool/layout.h"

namespace bedplate {
namespace {

using Rule = ConfigurationKey::Rule;

constexpr uint64_t kVolumeUnitBytes = 4 * kKiB;

}  // namespace

static void describe(ConfigurationTable& table, VolumeSettings& settings) {
  table.text("name", &settings.name, 1, 255)
      .required()
      .unique()
      .help("The export's name. The first volume also answers to the empty name.");
  table.size("bytes", &settings.bytes, kVolumeUnitBytes, kSizeMaxBytes)
      .required()
      .rule(Rule::kMultipleOf4KiB)
      .help("The export's size. All of it lies in the pool.");
  table.boolean("read_only", &settings.read_only).help("Whether writes are refused with EPERM.");
  table.choice("pages", &settings.pages, kPageChoices)
      .otherwise("those of the pool")
      .help("The pages of this volume alone.");
  table.integer("node", &settings.node, 0, kNodeCountMax - 1)
      .otherwise("the volumes' shard's")
      .help("The NUMA node that the volume lies on.");
}

void BlockService::describe(ConfigurationTable& table) {
  table.addresses("listen", &settings_.listen, 1, 8)
      .required()
      .unique()
      .help("Where the NBD server listens; see Addresses below.");
  table.addresses("image_listen", &settings_.image_listen, 1, 8)
      .otherwise("those of listen")
      .unique()
      .help("Where it listens instead as first process of an image.");
  table.shard("connections_shard", &settings_.connections_shard)
      .help("The shard that connections live on.");
  table.last_shard("volumes_shard", &settings_.volumes_shard)
      .help("The shard that volumes live on. The same one is fine.");
  table.integer("max_connections", &settings_.max_connections, 1, 4096)
      .help("How many clients may be connected. Their buffers, 128 KiB for each, are planned; "
            "one more is closed at once.");
  table.integer("requests_per_connection", &settings_.requests_per_connection, 1, 1024)
      .help("How many requests of one connection may be in flight.");
  table.integer("handshake_timeout_ms", &settings_.handshake_timeout_ms, 100, 600'000)
      .help("How long a client may take to negotiate before it is disconnected.");
  table.integer("client_timeout_s", &settings_.client_timeout_s, 0, 3600)
      .help("After how long a client over TCP is disconnected whose host gives no sign of "
            "life, or that takes none of its replies "
            "([nbd.md](nbd.md#clients-that-vanish)). 0: it keeps its place for ever.");
  table.tables("volume", &settings_.volumes, 1, 64);
}

BlockServerOptions BlockService::options(ServicePlan& plan) const {
  BlockServerOptions options;
  options.placement = plan.placement(settings_.connections_shard);
  for (const VolumeSettings& volume : settings_.volumes) {
    Placement placement = plan.placement(settings_.volumes_shard);
    placement.pages = volume.pages.value_or(placement.pages);
    placement.node = volume.node.value_or(placement.node);
    placement.is_own_wish = volume.pages.has_value();
    options.volumes.push_back({volume.name, volume.bytes, volume.read_only, placement});
  }
  options.max_connections = settings_.max_connections;
  options.requests_per_connection = settings_.requests_per_connection;
  options.handshake_timeout_ns = settings_.handshake_timeout_ms * kNsPerMs;
  options.client_timeout_ns = settings_.client_timeout_s * kNsPerSecond;
  return options;
}

Result<void> BlockService::plan(ServicePlan& plan) {
  options_ = options(plan);
  for (const SegmentRequest& request : plan_block_server(options_)) {
    plan.segment(request.owner, request.carves, request.placement);
  }
  const uint32_t shard = settings_.connections_shard;
  plan.connections(shard, settings_.max_connections, "max_connections");
  plan.timers(shard, settings_.max_connections);
  plan.sources(shard, 1);
  plan.sources(settings_.volumes_shard, 1);
  plan.listen("listen", settings_.listen, settings_.image_listen);
  plan.counters<ConnectionCounters>("connections");
  plan.counters<VolumeCounters>("volumes");
  return {};
}

Result<void> BlockService::create(ServiceContext& context) {
  const uint32_t connections = settings_.connections_shard;
  const uint32_t volumes = settings_.volumes_shard;
  auto connection_counters = context.counters<ConnectionCounters>("connections");
  BP_TRY(connection_counters);
  auto volume_counters = context.counters<VolumeCounters>("volumes");
  BP_TRY(volume_counters);
  const auto carve = [&context](const OwnerName& owner) { return context.carve(owner); };
  BP_TRY(server_.create(
      carve, options_,
      {&context.loop(connections), &context.sockets(connections), &context.loop(volumes),
       connection_counters.value(), volume_counters.value()}));
  BP_TRY(context.add_source(volumes, server_.volumes(), BlockServer::kVolumeBudget));
  BP_TRY(context.add_source(connections, server_, BlockServer::kReplyBudget));
  auto listeners = context.listeners("listen");
  BP_TRY(listeners);
  for (const Fd& socket : listeners.value()) server_.add_listener(socket.number());
  return {};
}

void BlockService::start(uint32_t shard) noexcept {
  if (shard == settings_.connections_shard) server_.start();
}

}  // namespace bedplate
