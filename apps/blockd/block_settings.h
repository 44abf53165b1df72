// [blockd] of the configuration, with the checks of settings that depend on each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/blockd/stores/ceph_cluster.h"
#include "apps/blockd/stores/nvme_drives.h"
#include "apps/blockd/stores/store_queue_datapath.h"
#include "apps/configuration/configuration.h"
#include "apps/configuration/configuration_table.h"
#include "apps/services/limit_settings.h"
#include "pinned_pool/plan.h"
#include "transport/loop/request_limit_datapath.h"
#include "transport/sockets/socket_address.h"
#include "transport/tls/tls_files.h"

namespace bedplate {

// A [[blockd.volume]]: memory, or a store named by one of file, device, nvme and rbd.
struct VolumeSettings {
  std::string name;
  uint64_t bytes = 0;  // 0: all of the store; memory needs a size
  bool read_only = false;
  std::optional<PageWish> pages = {};  // nothing: the pool's
  std::optional<int> node = {};        // nothing: the node of its shard's core
  std::optional<uint32_t> shard = {};  // nothing: one of the volumes' shards
  // One of file, device, nvme and rbd names the store. All are empty: the volume is memory.
  std::string file = {};
  std::string device = {};
  NvmeSettings nvme = {};
  std::string rbd = {};
  std::optional<uint32_t> rbd_timeout_s = {};  // nothing: the timeout of [blockd.ceph]
  bool polled = false;                         // for a file or device
  StoreQueueShape queue = {};
  LimitRates limits = {};
  std::string tenant = {};  // empty: none

  // describe() refuses a volume that names two stores, so at most one of these is true.
  bool is_memory() const noexcept {
    return file.empty() && device.empty() && !is_nvme() && !is_rbd();
  }
  bool is_nvme() const noexcept { return !nvme.address.empty(); }
  bool is_rbd() const noexcept { return !rbd.empty(); }
  // The path of the file or device; empty: the volume has neither.
  const std::string& path() const noexcept { return file.empty() ? device : file; }
};

// A [[blockd.tenant]]: a group of volumes with a limit for all of them together.
struct TenantSettings {
  std::string name;
  LimitRates limits = {};
};

struct BlockdSettings {
  std::vector<SocketAddress> listen;
  // Replaces `listen` in the first process of an image; empty: `listen` is used there, too.
  std::vector<SocketAddress> image_listen;
  uint32_t connections_shard = 0;            // index into Configuration::shards
  std::vector<uint32_t> connections_shards;  // instead of it; empty: it alone
  std::vector<uint32_t> volumes_shards;      // for volumes without a `shard`; empty: the last shard
  uint32_t max_connections = 64;
  uint32_t requests_per_connection = 64;
  uint32_t handshake_timeout_ms = 10000;
  uint32_t client_timeout_s = 60;  // 0: no timeout
  TlsFiles tls;
  CephSettings ceph;
  std::vector<VolumeSettings> volumes;
  std::vector<TenantSettings> tenants;
  std::vector<ListenerSettings> listeners;

  // The shards that serve connections; the first has the limits.
  std::vector<uint32_t> shards_of_connections() const {
    return connections_shards.empty() ? std::vector<uint32_t>{connections_shard}
                                      : connections_shards;
  }
};

// Keys, ranges and defaults: docs/configuration.md.
void describe(ConfigurationTable& table, BlockdSettings& settings);

}  // namespace bedplate
