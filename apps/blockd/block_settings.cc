#include "apps/blockd/block_settings.h"

#include <algorithm>
#include <set>

#include "apps/blockd/stores/rbd_mapping.h"
#include "apps/configuration/read_table.h"
#include "apps/services/limit_settings.h"
#include "apps/services/tls_keys.h"
#include "platform/numa.h"
#include "platform/units.h"

namespace bedplate {
namespace {

using Rule = ConfigurationKey::Rule;

constexpr uint64_t kVolumeUnitBytes = 4 * kKiB;
constexpr uint64_t kBufferBytesMin = align_up(StoreQueue::kBufferBytesMin, kMiB);

void check_volume(ReadTable& read, const VolumeSettings& settings) {
  const char* first = nullptr;
  bool was_refused = false;
  for (const char* store : {"file", "device", "nvme", "rbd"}) {
    was_refused |= read.was_refused(store);
    if (!read.has(store)) continue;
    if (first != nullptr) {
      read.refuse_value(store, std::string("the volume also has \"") + first + "\"",
                        "expected only one of them");
    }
    first = first == nullptr ? store : first;
  }
  if (settings.polled && !read.has("file") && !read.has("device")) {
    read.refuse_keys({"polled"}, "is for a volume on a file or a block device",
                     "expected \"file\" or \"device\" beside it");
  }
  if (!read.has("nvme")) {
    read.refuse_keys({"nvme_namespace", "nvme_queue_depth", "nvme_timeout_ms", "nvme_write_cache"},
                     "is for a volume on an NVMe drive", "expected \"nvme\" beside it");
  }
  if (!read.has("rbd")) {
    read.refuse_keys({"rbd_timeout_s"}, "is for a volume on a Ceph image",
                     "expected \"rbd\" beside it");
  }
  if (settings.is_rbd()) {
    if (auto image = parse_rbd_image(settings.rbd); !image.ok()) {
      read.refuse_value("rbd", std::string("\"rbd\" is ") + image.error().answer,
                        image.error().cure);
    }
  }
  if (!settings.is_memory() || was_refused) return;
  if (!read.has("bytes")) {
    read.refuse("\"bytes\" is missing in [[blockd.volume]]",
                "expected it, or \"file\", or \"device\", or \"nvme\", or \"rbd\"");
  }
}

// Checks that [blockd.ceph] exists if and only if a volume has "rbd", and checks its values.
void check_ceph(ReadTable& read, const BlockdSettings& settings) {
  const bool is_used = std::any_of(settings.volumes.begin(), settings.volumes.end(),
                                   [](const VolumeSettings& volume) { return volume.is_rbd(); });
  if (is_used && !read.has("ceph")) {
    read.refuse("[blockd.ceph] is missing, but a volume has \"rbd\"",
                "expected its monitors, user and keyring");
  }
  if (!is_used && read.has("ceph") && !read.was_refused("volume")) {
    read.refuse("[blockd.ceph] is set, but no volume has \"rbd\"",
                "expected such a volume, or no [blockd.ceph]");
  }
}

void check_cluster(ReadTable& read, const CephSettings& settings) {
  using Kind = SocketAddress::Kind;
  // These characters end a word in the text for the kernel.
  if (settings.user.find_first_of(", \t\n") != settings.user.npos) {
    read.refuse_value("user", "\"user\" has a comma or a blank", "expected the X of client.X");
  }
  for (const SocketAddress& monitor : settings.monitors) {
    if (monitor.kind == Kind::kTcp4 || monitor.kind == Kind::kTcp6) continue;
    read.refuse_value("monitors", "a monitor is at " + monitor.text(),
                      "expected \"tcp:ADDRESS:PORT\"");
  }
}

// Checks that each volume's tenant exists, and that each tenant has a volume. A name that an
// earlier table has, too, was refused and is empty.
void check_tenants(ReadTable& read, const BlockdSettings& settings) {
  for (const char* key : {"volume.tenant", "tenant", "tenant.name"}) {
    if (read.was_refused(key)) return;
  }
  const TomlNode* volumes = tables_of(read, "volume", settings.volumes.size());
  if (volumes == nullptr) return;
  std::set<std::string> names, used;
  for (const TenantSettings& tenant : settings.tenants) names.insert(tenant.name);
  for (const VolumeSettings& volume : settings.volumes) used.insert(volume.tenant);
  for (size_t i = 0; i < settings.volumes.size(); ++i) {
    const std::string& name = settings.volumes[i].tenant;
    if (name.empty() || names.count(name) != 0) continue;
    read.refuse_at(find_child(volumes->children[i], "tenant")->position,
                   "\"tenant\" is \"" + name + "\", but no [[blockd.tenant]] has this name",
                   "expected the name of one");
  }
  const TomlNode* tenants = tables_of(read, "tenant", settings.tenants.size());
  for (size_t i = 0; tenants != nullptr && i < settings.tenants.size(); ++i) {
    const std::string& name = settings.tenants[i].name;
    if (name.empty() || used.count(name) != 0) continue;
    read.refuse_at(find_child(tenants->children[i], "name")->position,
                   "\"name\" is \"" + name + "\", but no volume has this tenant",
                   "expected tenant = \"" + name + "\" in a [[blockd.volume]]");
  }
}

void check_shards(ReadTable& read) {
  if (!read.has("connections_shard") || !read.has("connections_shards")) return;
  read.refuse_value("connections_shard", "\"connections_shards\" names the shards, too",
                    "expected only one of them");
}

constexpr Choice<bool> kCacheChoices[] = {{"on", true}, {"off", false}};

}  // namespace

static void describe(ConfigurationTable& table, VolumeSettings& settings) {
  table.text("name", &settings.name, 1, 255)
      .required()
      .unique()
      .help("The export's name. The first volume also answers to the empty name.");
  table.size("bytes", &settings.bytes, kVolumeUnitBytes, kSizeMaxBytes)
      .otherwise("all that there is of another store")
      .rule(Rule::kMultipleOf4KiB)
      .help("The export's size. Required for a volume in memory, which lies in the pool. Any "
            "other store exports its first bytes.");
  table.path("file", &settings.file, 1, 255)
      .otherwise("none: it lies in memory")
      .help("The file that stores the volume ([Stores](nbd.md#stores)).");
  table.path("device", &settings.device, 1, 255)
      .otherwise("what `file` says")
      .help("The block device that stores it instead.");
  table.boolean("polled", &settings.polled)
      .help("Polls the drive of `file` or `device` for completions, instead of waiting for its "
            "interrupt ([Polled drives](nbd.md#polled-drives)).");
  table.text("nvme", &settings.nvme.address, 1, 32)
      .otherwise("what `file` or `device` says")
      .help("The PCI address of the NVMe drive that stores it instead, without the kernel's "
            "driver ([nvme.md](nvme.md)): `\"0000:01:00.0\"`.");
  table.integer("nvme_namespace", &settings.nvme.space, 1, 0xffff'fffe)
      .help("The drive's namespace.");
  table.integer("nvme_queue_depth", &settings.nvme.queue_depth, 3, NvmeQueue::kEntryCountMax - 1)
      .help("The most commands in flight from each shard that has volumes on the drive. All "
            "volumes of a drive have the same value, here and below.");
  table.integer("nvme_timeout_ms", &settings.nvme.timeout_ms, 100, 600'000)
      .help("A command is aborted after this long; after twice as long the drive is reset.");
  table.choice("nvme_write_cache", &settings.nvme.has_write_cache, kCacheChoices)
      .otherwise("as the drive has it")
      .help("Lets the drive acknowledge writes that a power cut would lose.");
  table.text("rbd", &settings.rbd, 3, 255)
      .otherwise("what `file`, `device` or `nvme` says")
      .help("The image in the Ceph cluster of [blockd.ceph] that stores it instead: "
            "`\"pool/image\"` ([Ceph](nbd.md#ceph)).");
  table.integer("rbd_timeout_s", &settings.rbd_timeout_s, 1, 600)
      .otherwise("`timeout_s` of [blockd.ceph]")
      .help("How long its monitors, and then the mapping of this image, may take.");
  table.size("buffer_bytes", &settings.queue.buffer_bytes, kBufferBytesMin, 64 * kGiB)
      .rule(Rule::kMultipleOf4KiB)
      .help("Memory for data in transit between the store and clients; a volume in memory needs "
            "none. The largest request takes 32 MiB.");
  table.integer("operations", &settings.queue.task_count, 1, 1024)
      .help("The most operations at once, in the store or waiting for an earlier write; further "
            "requests wait.");
  table.boolean("read_only", &settings.read_only).help("Refuses writes with EPERM.");
  table.choice("pages", &settings.pages, kPageChoices)
      .otherwise("those of the pool")
      .help("The page size of this volume.");
  table.integer("node", &settings.node, 0, kNodeCountMax - 1)
      .otherwise("its shard's")
      .help("The NUMA node of the volume, or of its buffers.");
  table.shard("shard", &settings.shard)
      .otherwise("one of `volumes_shards`")
      .help("The shard that serves it.");
  table.text("tenant", &settings.tenant, 1, 48)
      .otherwise("none: it belongs to no tenant")
      .help("The [[blockd.tenant]] whose limits hold for all its volumes together "
            "([Limits](nbd.md#limits)).");
  table.table("limits", &settings.limits);
  table.check([&settings](ReadTable& read) { check_volume(read, settings); });
}

static void describe(ConfigurationTable& table, TenantSettings& settings) {
  table.name("name", &settings.name, 1, 48)
      .required()
      .unique()
      .help("The name of a group of volumes, which name it as their `tenant`.");
  table.table("limits", &settings.limits);
}

static void describe(ConfigurationTable& table, CephSettings& settings) {
  table.addresses("monitors", &settings.monitors, 1, 16)
      .required()
      .unique()
      .help("The cluster's monitors, at their addresses for protocol v1: `\"tcp:10.0.0.1:6789\"`.");
  table.text("user", &settings.user, 1, 64)
      .required()
      .help("The appliance's user in the cluster, without `client.`.");
  table.path("keyring", &settings.keyring, 1, 255)
      .required()
      .help("The file with the user's key, readable by its owner alone. An image contains it.");
  table.integer("timeout_s", &settings.timeout_s, 1, 600)
      .help("How long monitors, and then the mapping, may take, unless a volume sets its own time; "
            "after that, boot is refused.");
  table.check([&settings](ReadTable& read) { check_cluster(read, settings); });
}

void describe(ConfigurationTable& table, BlockdSettings& settings) {
  table.addresses("listen", &settings.listen, 1, 8)
      .required()
      .unique()
      .help("The addresses at which the NBD server listens; see Addresses below.");
  table.addresses("image_listen", &settings.image_listen, 1, 8)
      .otherwise("those of listen")
      .unique()
      .help("The addresses to use instead as the first process of an image.");
  table.shard("connections_shard", &settings.connections_shard)
      .help("The shard that serves connections.");
  table.shards("connections_shards", &settings.connections_shards, kShardCountMax)
      .otherwise("the one that `connections_shard` names")
      .help("The shards that serve connections, instead of one. The first has the limits "
            "([nbd.md](nbd.md#several-shards)).");
  table.shards("volumes_shards", &settings.volumes_shards, kShardCountMax)
      .otherwise("the last shard")
      .help("The shards that serve volumes; shards of the connections may be among them. "
            "Each volume is placed on the NUMA node of its drive, if a shard is there, and "
            "among these shards on the one with the fewest volumes.");
  table.integer("max_connections", &settings.max_connections, 1, 4096)
      .help("The most clients at once, on all shards. Their buffers, 128 KiB for each and as much "
            "again with TLS, are planned; further connections are closed at once.");
  table.integer("requests_per_connection", &settings.requests_per_connection, 1, 1024)
      .help("The most requests in flight on one connection.");
  table.integer("handshake_timeout_ms", &settings.handshake_timeout_ms, 100, 600'000)
      .help("How long a client may take to negotiate before it is disconnected.");
  table.integer("client_timeout_s", &settings.client_timeout_s, 0, 3600)
      .help("A client over TCP is disconnected when its host does not respond, or it does not "
            "read its replies, for this long ([nbd.md](nbd.md#clients-that-vanish)). 0: never.");
  describe_tls_keys(table, &settings.tls, {.page = "nbd.md#tls"});
  table.table("ceph", &settings.ceph);
  table.tables("volume", &settings.volumes, 1, 64);
  table.tables("tenant", &settings.tenants, 0, 64);
  table.check([&settings](ReadTable& read) { check_ceph(read, settings); });
  table.check([&settings](ReadTable& read) { check_tenants(read, settings); });
  table.check(&check_shards);
  describe_listeners(table, &settings.listeners, settings.listen, settings.image_listen);
}

}  // namespace bedplate
