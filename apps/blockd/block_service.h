// blockd as a service of the runtime: its plan, and its placement on shards.
//
// Connections run on one shard or several (block_server.h), and so do volumes (volume_shards.h).
// Functions without a comment implement service.h, which names their threads.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/blockd/block_server.h"
#include "apps/blockd/block_settings.h"
#include "apps/blockd/stores/nvme_drives.h"
#include "apps/blockd/stores/rbd_images.h"
#include "apps/blockd/volume.h"
#include "apps/services/limit_methods.h"
#include "apps/services/listeners.h"
#include "apps/services/service.h"

namespace bedplate {

class BlockService final : public Service {
 public:
  const char* name() const noexcept override { return "blockd"; }
  void describe(ConfigurationTable& table) override { bedplate::describe(table, settings_); }
  Result<void> plan(ServicePlan& plan) override;
  void preflight(std::vector<Error>* problems) override;
  Result<void> create(ServiceContext& context) override;
  void start(uint32_t shard) noexcept override;
  void tick() noexcept override;
  void methods(ControlMethods& methods) override;
  void request_drain() noexcept override;
  bool stopped() noexcept override;
  bool is_drained() const noexcept override {
    return server_.is_drained() && drives_.are_shut_down();
  }

  // The settings that describe() has read. A caller changes them only before plan().
  BlockdSettings& settings() noexcept { return settings_; }
  // The server's options, from the settings. Memory without a node goes to the node of the shard
  // that uses it. VolumePlan::shard is the index of the volume's shard in distinct_shards().
  BlockServerOptions options(ServicePlan& plan) const;
  // The planned shard of each volume of the configuration, in order: indices into
  // Configuration::shards. create() may move an NVMe volume to another of these shards.
  std::vector<uint32_t> volume_shards(ServicePlan& plan) const;

 private:
  // The addresses that it listens at.
  const std::vector<SocketAddress>& addresses(const Configuration& all) const {
    return listened_addresses(all, settings_.listen, settings_.image_listen);
  }
  void add_limits(const Configuration& all, BlockServerOptions* options) const;
  void plan_connections(ServicePlan& plan) const;
  void plan_trace(ServicePlan& plan) const;
  void assign_shards(const Configuration& configuration, const std::vector<uint32_t>& shards);
  static void tell_silence(Volume& volume, const VolumeSettings& settings) noexcept;
  Result<FilePlan> file_plan(size_t volume_index);
  bool find_volume(ControlCall& call) noexcept;
  void list_volumes(ControlCall& call) noexcept;
  void set_read_only(ControlCall& call) noexcept;
  void end_on_each_shard(ControlCall& there) const noexcept;
  void hold_volume(ControlCall& call) noexcept;
  void set_listening(ControlCall& call) noexcept;
  Result<ConnectionsWiring> wire_connections(ServiceContext& context, size_t number);
  Result<void> add_connections(ServiceContext& context);
  // Implements BlockServer::OpenVolume.
  Result<void> open_volume(ServiceContext& context, size_t volume_index, Volume& volume);
  Result<std::unique_ptr<VolumeStore>> open_file(ServiceContext& context, size_t volume_index);

  // By LimitKind.
  static constexpr LimitMethods::Kind kLimitKinds[] = {
      {"volume", "A volume's name; give one of volume, tenant and listener."},
      {"tenant", "A name in [[blockd.tenant]]."},
      {"listener", "An address of listen."}};

  BlockdSettings settings_;
  // Made by the last plan(). create() updates these three if a drive moves volumes.
  BlockServerOptions options_;
  std::vector<uint32_t> volume_shards_;   // the shards that have volumes, ascending
  std::vector<std::string> shard_names_;  // the names of volume_shards_, in the same order
  // Those of the connections, in the configuration's order. create() makes them.
  std::vector<uint32_t> connections_shards_;
  std::vector<std::string> connections_names_;

  NvmeDrives drives_;  // of the last plan
  RbdBus rbd_bus_;
  RbdImages rbd_images_{rbd_bus_};  // of the last plan
  BlockServer server_;
  std::map<uint32_t, StreamSockets*> volume_sockets_;  // by shard
  std::atomic<bool> is_draining_{false};
  LimitMethods limit_methods_{LimitMethods::Terms{
      .service = "blockd",
      .kinds = kLimitKinds,
      .limits = &server_.limits(),
      .drains = &is_draining_,
      .change =
          [](void* self, RequestLimit& limit, const LimitRates& rates) noexcept {
            static_cast<BlockService*>(self)->server_.set_limit(limit, rates);
          },
      .context = this}};
};

}  // namespace bedplate
