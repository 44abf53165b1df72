#include "apps/blockd/block_service.h"

#include <algorithm>
#include <span>

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "apps/blockd/stores/file_store.h"
#include "apps/blockd/volume_shards.h"
#include "apps/boot/service_context.h"
#include "apps/services/service_plan.h"
#include "pinned_pool/layout.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/numa.h"
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
  options.placement = plan.placement(settings_.connections_shard);
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
  const uint32_t shard = settings_.connections_shard;
  plan.connections(shard, settings_.max_connections, "max_connections");
  plan.timers(shard, BlockLimits::timer_count(options_.limits));
  plan.sources(shard, 1);
  for (const uint32_t each : volume_shards_) plan.sources(each, 1);
  plan.counters<nbd::ConnectionCounters>("connections");
  plan.tls(shard, settings_.max_connections, settings_.tls,
           {.heap_owner = TlsCredentials::kHeapOwner,
            .handshake_ns_max = 0});  // a part of the negotiation, whose time is limited
  plan.listen("listen", settings_.listen, settings_.image_listen);
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

Result<void> BlockService::create(ServiceContext& context) {
  const uint32_t connections = settings_.connections_shard;
  BP_TRY_ASSIGN(const auto connection_counters,
                context.counters<nbd::ConnectionCounters>("connections"));
  BP_TRY(drives_.create(context));
  std::vector<uint32_t> shards;
  for (size_t i = 0; i < settings_.volumes.size(); ++i) {
    const VolumeSettings& volume = settings_.volumes[i];
    shards.push_back(volume.is_nvme() ? drives_.shard_of(volume.name)
                                      : volume_shards_[options_.volumes[i].shard]);
  }
  assign_shards(context.configuration(), shards);
  BlockServerWiring wiring = {.connections_loop = &context.loop(connections),
                              .sockets = &context.sockets(connections),
                              .connection_counters = connection_counters};
  BP_TRY_ASSIGN(wiring.trace, context.trace(connections));
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
  BP_TRY_ASSIGN(wiring.tls, context.tls(connections));
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
  BP_TRY(context.add_source(connections, server_, BlockServer::kReplyBudget));
  BP_TRY_ASSIGN(const auto listeners, context.listeners("listen"));
  for (size_t i = 0; i < listeners.size(); ++i) {
    const std::string address =
        address_of_socket(addresses(context.configuration()), i, listeners.size()).text();
    server_.add_listener(listeners[i].number(),
                         server_.limits().find(LimitKind::kListener, address));
  }
  return {};
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

// Logs for the shards, which cannot log.
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
  drives_.tick();
  // The drives shut down only after all clients are served.
  if (is_draining_ && server_.is_drained()) drives_.request_shut_down();
}

void BlockService::start(uint32_t shard) noexcept {
  if (const auto found = volume_sockets_.find(shard); found != volume_sockets_.end()) {
    drives_.start(shard, *found->second);
  }
  if (shard == settings_.connections_shard) server_.start();
}

void BlockService::request_drain() noexcept {
  is_draining_ = true;
  server_.request_drain();
}

}  // namespace bedplate
