#include "apps/blockd/block_service.h"

#include <algorithm>
#include <span>
#include <utility>

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "apps/blockd/stores/file_store.h"
#include "apps/blockd/volume_shards.h"
#include "apps/boot/service_context.h"
#include "apps/configuration/configuration.h"
#include "apps/services/service_plan.h"
#include "apps/services/shard_counters.h"
#include "pinned_pool/layout.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/numa.h"
#include "transport/sockets/client_moves.h"
#include "transport/tls/tls_credentials.h"

namespace bedplate {
namespace {

// The NUMA node from the volume's settings or of its drive; kAnyNode: unknown.
int node_of(const VolumeSettings& volume) {
  if (volume.node.has_value()) return *volume.node;
  if (volume.is_nvme()) {
    return node_of_device(("/sys/bus/pci/devices/" + volume.nvme.address).c_str());
  }
  struct stat status {};
  if (volume.path().empty() || stat(volume.path().c_str(), &status) != 0) return kAnyNode;
  return node_of_block_device(S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev);
}

// Gives each volume the number of its shard among the shards with volumes. Returns these shards.
std::vector<uint32_t> number_shards(const std::vector<uint32_t>& shards,
                                    std::vector<VolumePlan>& volumes) {
  std::vector<uint32_t> distinct = distinct_shards(shards);
  for (size_t i = 0; i < volumes.size(); ++i) {
    const auto number = std::lower_bound(distinct.begin(), distinct.end(), shards[i]);
    volumes[i].shard = static_cast<uint32_t>(number - distinct.begin());
  }
  return distinct;
}

// The name of the volume's file in the service's plan.
std::string file_name_of(size_t volume_index) { return "volume" + std::to_string(volume_index); }

// Names the volume's store, for messages.
std::string store_name_of(const VolumeSettings& volume) {
  if (volume.is_rbd()) return "the Ceph image " + volume.rbd;
  if (!volume.is_nvme()) return volume.path();
  return "namespace " + std::to_string(volume.nvme.space) + " of the NVMe drive " +
         volume.nvme.address;
}

// Names the key that gives the path, for messages: "file of volume disk0".
std::string key_of(const VolumeSettings& volume) {
  const char* key = volume.is_rbd() ? "rbd" : volume.file.empty() ? "device" : "file";
  return std::string(key) + " of volume " + volume.name;
}

static_assert(kShardCountMax <= BlockServer::kConnectionShardsMax);

// The counters of a volume's requests on one of several shards of connections.
constexpr const char* kVolumeParts = "volume_requests";
std::string part_of_volume(const std::string& volume, size_t shard) {
  return volume + "@" + std::to_string(shard);
}

// The counters of connections. Peaks of several shards do not add up to that of one connection, so
// the sum measures no key then.
CounterDescriptions connection_counters(size_t shard_count) {
  const CounterDescriptions described = described_counters<nbd::ConnectionCounters>();
  if (shard_count == 1) return described;
  std::vector<CounterDescription> all(described.begin(), described.end());
  for (CounterDescription& each : all) {
    if (each.name == "requests_peak") each.measure = {};
  }
  return all;
}

// The address of a listening socket on the shard number `shard` of the connections: the first has
// all sockets, another one those of TCP addresses.
std::string address_on(size_t shard, const std::vector<SocketAddress>& addresses, size_t socket,
                       size_t socket_count) {
  if (shard == 0) return address_of_socket(addresses, socket, socket_count).text();
  std::vector<SocketAddress> own;
  for (const SocketAddress& each : addresses) {
    const bool is_tcp =
        each.kind == SocketAddress::Kind::kTcp4 || each.kind == SocketAddress::Kind::kTcp6;
    if (is_tcp) own.push_back(each);
  }
  return own[socket].text();
}

// The set of a limit's counters.
const char* counters_of(LimitKind kind) {
  constexpr const char* kSets[] = {"volume_limits", "tenant_limits", "listener_limits"};
  return kSets[static_cast<size_t>(kind)];
}

}  // namespace

std::vector<uint32_t> BlockService::volume_shards(ServicePlan& plan) const {
  std::vector<uint32_t> shards = settings_.volumes_shards;
  if (shards.empty()) {
    shards.push_back(static_cast<uint32_t>(plan.configuration().shards.size() - 1));
  }
  std::vector<VolumeShardChoice> choices;
  for (const uint32_t shard : shards) choices.push_back({shard, plan.placement(shard).node});
  std::vector<VolumeWish> volumes;
  for (const VolumeSettings& volume : settings_.volumes) {
    volumes.push_back({volume.shard, node_of(volume)});
  }
  return choose_volume_shards(volumes, choices);
}

BlockServerOptions BlockService::options(ServicePlan& plan) const {
  BlockServerOptions options;
  options.placements.clear();
  for (const uint32_t shard : settings_.shards_of_connections()) {
    options.placements.push_back(plan.placement(shard));
  }
  const std::vector<uint32_t> shards = volume_shards(plan);
  for (size_t i = 0; i < settings_.volumes.size(); ++i) {
    const VolumeSettings& volume = settings_.volumes[i];
    Placement placement = plan.placement(shards[i]);
    placement.pages = volume.pages.value_or(placement.pages);
    placement.node = volume.node.value_or(placement.node);
    placement.is_own_wish = volume.pages.has_value();
    options.volumes.push_back({volume.name, volume.bytes, volume.read_only, placement});
    if (!volume.is_memory()) options.volumes.back().queue = volume.queue;
    options.volumes.back().tenant = volume.tenant;
    options.limits.push_back({LimitKind::kVolume, volume.name, volume.limits});
  }
  add_limits(plan.configuration(), &options);
  number_shards(shards, options.volumes);
  options.max_connections = settings_.max_connections;
  options.requests_per_connection = settings_.requests_per_connection;
  options.handshake_timeout_ns = settings_.handshake_timeout_ms * kNsPerMs;
  options.client_timeout_ns = settings_.client_timeout_s * kNsPerSecond;
  return options;
}

// Adds the limits of tenants and listeners. One without rates may get some later.
void BlockService::add_limits(const Configuration& all, BlockServerOptions* options) const {
  for (const TenantSettings& tenant : settings_.tenants) {
    options->limits.push_back({LimitKind::kTenant, tenant.name, tenant.limits});
  }
  for (const SocketAddress& address : addresses(all)) {
    const std::string name = address.text();
    options->limits.push_back({LimitKind::kListener, name, limits_of(settings_.listeners, name)});
  }
}

// The plan of the file for a volume on a file, a device or an rbd image.
Result<FilePlan> BlockService::file_plan(size_t volume_index) {
  const VolumeSettings& volume = settings_.volumes[volume_index];
  FilePlan file = {.name = file_name_of(volume_index),
                   .path = volume.path(),
                   .key = key_of(volume),
                   .is_writable = !volume.read_only,
                   .is_direct = true,
                   .excludes_writers = true,
                   .is_whole_blocks = true,
                   .tells_extents = !volume.file.empty(),
                   .is_polled = volume.polled,
                   .bytes_min = volume.bytes,
                   .operation_count_max = volume.queue.task_count};
  if (!volume.is_rbd()) return file;
  RbdImage image = parse_rbd_image(volume.rbd).take();  // the configuration was checked
  image.is_writable = !volume.read_only;
  CephSettings ceph = settings_.ceph;
  ceph.timeout_s = volume.rbd_timeout_s.value_or(ceph.timeout_s);
  BP_TRY_ASSIGN(const auto maker, rbd_images_.add(volume.name, image, ceph));
  file.path = "/dev/rbd/" + volume.rbd;
  file.maker = maker;
  return file;
}

// Notes which shards have volumes. `shards`: that of each volume, in the configuration's order.
void BlockService::assign_shards(const Configuration& configuration,
                                 const std::vector<uint32_t>& shards) {
  volume_shards_ = number_shards(shards, options_.volumes);
  shard_names_.clear();
  for (const uint32_t each : volume_shards_) {
    shard_names_.push_back(configuration.shards[each].name);
  }
}

Result<void> BlockService::plan(ServicePlan& plan) {
  options_ = options(plan);
  const std::vector<uint32_t> shards = volume_shards(plan);
  assign_shards(plan.configuration(), shards);
  for (const SegmentRequest& request : plan_block_server(options_)) {
    plan.segment(request.owner, request.carves, request.placement);
  }
  plan_connections(plan);
  for (const uint32_t each : volume_shards_) plan.sources(each, 1);
  for (size_t i = 0; i < options_.limits.size(); ++i) {
    plan.counters<LimitCounters>(counters_of(options_.limits[i].kind),
                                 short_limit_name(options_, i));
  }
  plan_trace(plan);
  drives_.clear();
  rbd_images_.clear();
  for (size_t i = 0; i < settings_.volumes.size(); ++i) {
    const VolumeSettings& volume = settings_.volumes[i];
    const std::string name = short_volume_name(options_, i);
    plan.counters<VolumeCounters>("volumes", name);
    if (volume.is_memory()) continue;
    plan.counters(CounterSet{this->name(),
                             "stores",
                             name,
                             sizeof(StoreCounters),
                             described_counters<StoreCounters>(),
                             {{"place", store_name_of(volume)}}});
    if (volume.is_nvme()) {
      BP_TRY(drives_.add(volume.name, volume.nvme, volume.bytes, shards[i]));
      continue;
    }
    BP_TRY_ASSIGN(auto file, file_plan(i));
    plan.file(shards[i], std::move(file));
    if (volume.is_rbd()) plan.descriptors(1, nullptr);  // the socket to its child
  }
  drives_.plan(plan);
  if (rbd_images_.is_empty()) return {};
  plan.module("rbd");
  plan.image_file(settings_.ceph.keyring);
  return {};
}

// Plans the needs of the shards of connections, and of the limits on the first of them.
void BlockService::plan_connections(ServicePlan& plan) const {
  const std::vector<uint32_t> shards = settings_.shards_of_connections();
  const uint32_t count = connections_of_each(options_);
  const bool are_several = shards.size() > 1;
  const CounterDescriptions described = connection_counters(shards.size());
  plan.timers(shards.front(), BlockLimits::timer_count(options_.limits));
  plan.sources(shards.front(), static_cast<uint32_t>(shards.size() - 1));  // FarLimits
  const std::vector<ShardSettings>& all = plan.configuration().shards;
  for (const uint32_t shard : shards) {
    const std::string name = shard < all.size() ? all[shard].name : "";
    plan.connections(shard, count, "max_connections");
    plan.sources(shard, 1);
    plan.counters(on_shard({.owner = this->name(),
                            .name = "connections",
                            .instance = "",
                            .bytes = sizeof(nbd::ConnectionCounters),
                            .counters = described},
                           name, shards.size()));
    // The handshake is a part of the negotiation, whose time is limited.
    plan.tls(shard, count, settings_.tls,
             {.heap_owner = TlsCredentials::kHeapOwner,
              .counters = are_several ? name : "",
              .handshake_ns_max = 0,
              .are_summed = are_several});
    if (are_several) plan.descriptors(ClientMoves::kSlotCount, nullptr);
  }
  plan.listen("listen", settings_.listen, settings_.image_listen, {.shards = shards});
  if (!are_several) return;
  plan.shard_counters<MoveCounters>("moves", shards);
  plan.shard_counters<nbd::LaneCounters>("lanes", shards);
  for (size_t i = 0; i < options_.volumes.size(); ++i) {
    const std::string volume = short_volume_name(options_, i);
    for (size_t k = 0; k < shards.size(); ++k) {
      plan.counters<VolumeRequestCounters>(kVolumeParts, part_of_volume(volume, k));
    }
  }
  const uint64_t door_bytes = sizeof(VolumeDoor) + sizeof(nbd::ExportInfo);
  plan.heap(shards.size() * (sizeof(BlockConnections) + sizeof(FarLimits) + sizeof(ClientMoves) +
                             kKiB + options_.volumes.size() * door_bytes));
}

void BlockService::plan_trace(ServicePlan& plan) const {
  TraceDescription description = {kRequestKinds, kRequestStations};
  for (size_t i = 0; i < options_.volumes.size(); ++i) {
    description.subjects.push_back(short_volume_name(options_, i));
  }
  plan.trace(std::move(description));
}

// Finds problems that opening the files does not find.
void BlockService::preflight(std::vector<Error>* problems) {
  drives_.preflight(problems);
  for (const VolumeSettings& volume : settings_.volumes) {
    struct stat status {};
    if (volume.path().empty() || stat(volume.path().c_str(), &status) != 0) continue;
    Error error = error_while("checking %s for %s in [blockd]", volume.path().c_str(),
                              key_of(volume).c_str());
    if (volume.file.empty() ? S_ISREG(status.st_mode) : S_ISBLK(status.st_mode)) {
      error.set_answer("it is a %s", volume.file.empty() ? "file" : "block device");
      problems->push_back(
          error.set_cure("set %s instead", volume.file.empty() ? "\"file\"" : "\"device\""));
      continue;
    }
    // Writes to a sparse file take space.
    struct statvfs system {};
    const bool has_holes =
        S_ISREG(status.st_mode) &&
        static_cast<uint64_t>(status.st_blocks) * 512 < static_cast<uint64_t>(status.st_size);
    if (volume.read_only || !has_holes || statvfs(volume.path().c_str(), &system) != 0) continue;
    if (system.f_bavail != 0) continue;
    error.set_answer("it has holes, and its file system is full");
    problems->push_back(error.set_cure("free space on it"));
  }
}

Result<std::unique_ptr<VolumeStore>> BlockService::open_file(ServiceContext& context,
                                                             size_t volume_index) {
  const VolumeSettings& volume = settings_.volumes[volume_index];
  BP_TRY_ASSIGN(const auto file, context.file(file_name_of(volume_index)));
  const uint32_t block_bytes = FileStore::block_bytes_of(*file);
  if (block_bytes > StoreQueue::kBlockBytesMax) {
    return error_while("opening %s for %s in [blockd]", volume.path().c_str(),
                       key_of(volume).c_str())
        .set_answer("its block size is %u bytes", block_bytes)
        .set_cure("name one with a block size of at most 4096");
  }
  std::unique_ptr<VolumeStore> store = std::make_unique<FileStore>(*file, volume.bytes);
  return store;
}

Result<void> BlockService::open_volume(ServiceContext& context, size_t volume_index,
                                       Volume& volume) {
  const VolumeSettings& settings = settings_.volumes[volume_index];
  const std::string name = short_volume_name(options_, volume_index);
  BP_TRY_ASSIGN(volume.counters, context.counters<VolumeCounters>("volumes", name));
  if (settings.is_memory()) return {};
  BP_TRY_ASSIGN(volume.store_counters, context.counters<StoreCounters>("stores", name));
  if (settings.is_nvme()) {
    volume.store = drives_.make_store(settings.name);
    return {};
  }
  BP_TRY_ASSIGN(volume.store, open_file(context, volume_index));
  return {};
}

// The objects of the shard number `number` of the connections.
Result<ConnectionsWiring> BlockService::wire_connections(ServiceContext& context, size_t number) {
  const std::vector<uint32_t>& shards = connections_shards_;
  const uint32_t shard = shards[number];
  ConnectionsWiring made = {.loop = &context.loop(shard), .sockets = &context.sockets(shard)};
  BP_TRY_ASSIGN(made.counters,
                context.shard_counters<nbd::ConnectionCounters>("connections", shard));
  BP_TRY_ASSIGN(made.trace, context.trace(shard));
  BP_TRY_ASSIGN(made.tls, context.tls(shard));
  if (shards.size() == 1) return made;
  BP_TRY_ASSIGN(made.moves, context.shard_counters<MoveCounters>("moves", shard));
  BP_TRY_ASSIGN(made.lanes, context.shard_counters<nbd::LaneCounters>("lanes", shard));
  for (size_t i = 0; i < options_.volumes.size(); ++i) {
    const std::string part = part_of_volume(short_volume_name(options_, i), number);
    BP_TRY_ASSIGN(const auto counters, context.counters<VolumeRequestCounters>(kVolumeParts, part));
    made.volumes.push_back(counters);
  }
  return made;
}

// Adds the sources of the shards of connections, and their listeners.
Result<void> BlockService::add_connections(ServiceContext& context) {
  const std::vector<uint32_t>& shards = connections_shards_;
  const std::vector<SocketAddress>& all = addresses(context.configuration());
  for (uint32_t i = 1; i < shards.size(); ++i) {
    BP_TRY(context.add_source(shards[0], server_.far_limits(i), FarLimits::kBudget));
  }
  for (uint32_t i = 0; i < shards.size(); ++i) {
    BlockConnections& connections = server_.connections(i);
    BP_TRY(context.add_source(shards[i], connections, BlockConnections::kReplyBudget));
    BP_TRY_ASSIGN(const auto listeners, context.listeners("listen", shards[i]));
    for (size_t k = 0; k < listeners.size(); ++k) {
      const std::string address = address_on(i, all, k, listeners.size());
      connections.add_listener(listeners[k].number(),
                               server_.limits().find(LimitKind::kListener, address));
    }
  }
  return {};
}

Result<void> BlockService::create(ServiceContext& context) {
  BP_TRY(drives_.create(context));
  std::vector<uint32_t> shards;
  for (size_t i = 0; i < settings_.volumes.size(); ++i) {
    const VolumeSettings& volume = settings_.volumes[i];
    shards.push_back(volume.is_nvme() ? drives_.shard_of(volume.name)
                                      : volume_shards_[options_.volumes[i].shard]);
  }
  assign_shards(context.configuration(), shards);
  BlockServerWiring wiring;
  connections_shards_ = settings_.shards_of_connections();
  for (size_t i = 0; i < connections_shards_.size(); ++i) {
    connections_names_.push_back(context.configuration().shards[connections_shards_[i]].name);
    BP_TRY_ASSIGN(auto connections, wire_connections(context, i));
    wiring.connections.push_back(std::move(connections));
  }
  for (size_t i = 0; i < options_.limits.size(); ++i) {
    BP_TRY_ASSIGN(const auto limit_counters,
                  context.counters<LimitCounters>(counters_of(options_.limits[i].kind),
                                                  short_limit_name(options_, i)));
    wiring.limit_counters.push_back(limit_counters);
  }
  for (const uint32_t shard : volume_shards_) {
    wiring.volume_loops.push_back(&context.loop(shard));
    volume_sockets_[shard] = &context.sockets(shard);
  }
  const auto carve = [&context](const OwnerName& owner) { return context.carve(owner); };
  const auto open_one = [&](size_t index, Volume& volume) {
    return open_volume(context, index, volume);
  };
  BP_TRY(server_.create(carve, open_one, options_, wiring));
  for (uint32_t i = 0; i < volume_shards_.size(); ++i) {
    BP_TRY(context.add_source(volume_shards_[i], server_.source_of(i), BlockServer::kVolumeBudget));
  }
  // Polled after the volumes, so that the drives' commands leave in the same round.
  BP_TRY(drives_.add_sources(context));
  return add_connections(context);
}

void BlockService::tell_silence(Volume& volume, const VolumeSettings& settings) noexcept {
  using Change = StoreSilence::Change;
  StoreCounters& counters = *volume.store_counters;
  const Change change = volume.silence.look(counters, monotonic_ns());
  if (change == Change::kNone) return;
  const std::string store = store_name_of(settings);
  if (change == Change::kAnswers) {
    BP_LOG_WARNING("%s answers again", store.c_str());
    return;
  }
  BP_LOG_WARNING("%s has completed none of %llu operations for %llu s: clients of volume %s are "
                 "waiting",
                 store.c_str(), static_cast<unsigned long long>(counters.operations.read()),
                 static_cast<unsigned long long>(StoreSilence::kToldNs / kNsPerSecond),
                 settings.name.c_str());
}

// Logs for the shards, which cannot log, and adds up their counters.
void BlockService::tick() noexcept {
  const std::span<Volume> volumes = server_.volumes();
  for (size_t i = 0; i < volumes.size(); ++i) {
    Volume& volume = volumes[i];
    if (volume.queue == nullptr) continue;
    volume.store->look_at_size();
    tell_silence(volume, settings_.volumes[i]);
    if (volume.has_told_failure || volume.store_counters->has_failed_flush.read() == 0) continue;
    volume.has_told_failure = true;
    BP_LOG_ERROR(
        "%s: a flush has failed, and writes since the previous flush may be lost; FLUSH and FUA "
        "answer EIO until the volume is opened again: find the cause (dmesg), check the data of "
        "its clients, and start again",
        store_name_of(settings_.volumes[i]).c_str());
  }
  server_.add_up_counters();
  drives_.tick();
  // The drives shut down only after all clients are served.
  if (is_draining_ && server_.is_drained()) drives_.request_shut_down();
}

void BlockService::start(uint32_t shard) noexcept {
  if (const auto found = volume_sockets_.find(shard); found != volume_sockets_.end()) {
    drives_.start(shard, *found->second);
  }
  for (uint32_t i = 0; i < connections_shards_.size(); ++i) {
    if (connections_shards_[i] == shard) server_.connections(i).start();
  }
}

void BlockService::request_drain() noexcept {
  is_draining_ = true;
  server_.request_drain();
}

bool BlockService::stopped() noexcept {
  server_.end();
  return true;
}

}  // namespace bedplate
