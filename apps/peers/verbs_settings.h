// The settings of the peers of an appliance (docs/verbs.md): [verbs], [[verbs.peer]] and
// [[verbs.export]]. They are read once and not changed afterwards.
//
// A program without libbedplate-verbs.a has the defaults: no [verbs].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/configuration/configuration.h"
#include "pinned_pool/plan.h"
#include "platform/units.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {

inline constexpr uint32_t kVerbsPeerCountMax = 256;

// How queue pairs of two appliances find one another.
enum class VerbsConnect { kSocket, kRdmaCm };

// Access of peers to the heap without a request to the owner.
enum class RemoteHeap { kNone, kRead };

struct VerbsPeerSettings {
  std::string name;
  std::optional<SocketAddress> address = {};  // nothing: the peer dials
};

// A segment of the pool that peers may reach; its owner is `export:NAME`.
struct VerbsExportSettings {
  std::string name;
  uint64_t bytes = 0;
  bool may_read = false;
  bool may_write = false;
  bool may_atomic = false;
  std::optional<PageWish> pages = {};  // nothing: the pool's page size
};

struct VerbsSettings {
  bool enabled = false;  // the table [verbs] is there
  bool required = true;
  std::string device;  // empty, and port 0: the first usable one
  uint8_t port = 0;
  uint32_t shard = 0;  // index into Configuration::shards
  std::optional<SocketAddress> listen = {};
  VerbsConnect connect = VerbsConnect::kSocket;
  uint16_t window = 64;  // this and the next, up to max_peers: see VerbsShape
  uint32_t message_bytes = 4096;
  uint32_t operations = 64;
  uint64_t bounce_bytes = kMiB;
  uint32_t datagrams = 0;
  uint32_t max_peers = 0;  // at least the number of [[verbs.peer]]
  bool trust_windows = false;
  uint32_t back_off_min_ms = 10;
  uint32_t back_off_max_ms = 1000;
  uint32_t give_up_ms = 30'000;
  RemoteHeap remote = RemoteHeap::kNone;
  std::vector<VerbsPeerSettings> peers;
  std::vector<VerbsExportSettings> exports;
  // In an image: the device's kernel module, and the interface that soft RoCE ("rdma_rxe") uses.
  std::string driver;
  std::string interface;
};

inline constexpr const char* kVerbsPart = "verbs";

inline const VerbsSettings& verbs_settings(const Configuration& all) {
  return all.part<VerbsSettings>(kVerbsPart);
}

}  // namespace bedplate
