// The tables of peers: the name of each key, its values, the variable that gets them, and its
// meaning; then the rules between keys.
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/configuration/configuration_part.h"
#include "apps/configuration/configuration_words.h"
#include "apps/configuration/read_table.h"
#include "apps/peers/verbs_settings.h"
#include "platform/product.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {
namespace {

using Rule = ConfigurationKey::Rule;

// IB_DEVICE_NAME_MAX, without its NUL.
constexpr uint64_t kDeviceNameMax = 63;
// The space for a name in the record of a handshake, without its NUL.
constexpr uint64_t kVerbsNameMax = kVerbsNameBytes - 1;
constexpr uint64_t kBackOffMaxMs = 600'000;

constexpr Choice<VerbsConnect> kVerbsConnects[] = {{"socket", VerbsConnect::kSocket},
                                                   {"rdma_cm", VerbsConnect::kRdmaCm}};
constexpr Choice<RemoteHeap> kRemoteHeaps[] = {{"none", RemoteHeap::kNone},
                                               {"read", RemoteHeap::kRead}};

// Checks that each side of a pair can find the other, and that the peers fit max_peers.
void check_verbs_peers(ReadTable& table, VerbsSettings& verbs) {
  const TomlNode& node = table.node();
  const auto count = static_cast<uint32_t>(verbs.peers.size());
  if (!table.has("max_peers")) {
    verbs.max_peers = std::max(count, 1U);
  } else if (count > verbs.max_peers && !table.was_refused("max_peers")) {
    table.refuse_value("max_peers",
                       "\"max_peers\" is " + std::to_string(verbs.max_peers) + ", but there are " +
                           std::to_string(count) + " peers",
                       "expected that many or more, or leave it out");
  }
  const bool is_by_cm = verbs.connect == VerbsConnect::kRdmaCm;
  const auto refuse_unix = [&](const TomlNode& of, const char* key,
                               const std::optional<SocketAddress>& address) {
    if (!is_by_cm || !address || address->kind != SocketAddress::Kind::kUnix) return;
    table.refuse_at(find_child(of, key)->position, quoted(key) + " is " + quoted(address->text()),
                    "expected tcp:ADDRESS:PORT: rdma_cm supports nothing else");
  };
  refuse_unix(node, "listen", verbs.listen);
  const TomlNode* peers = find_child(node, "peer");
  if (peers == nullptr || peers->children.size() != count) return;
  for (size_t i = 0; i < count; ++i) {
    const TomlNode& peer = peers->children[i];
    refuse_unix(peer, "address", verbs.peers[i].address);
    if (find_child(peer, "address") || find_child(node, "listen")) continue;
    if (table.was_refused("peer.address") || table.was_refused("listen")) continue;
    table.refuse_at(peer.position, "\"address\" is missing in [[verbs.peer]]",
                    "expected address: tcp:ADDRESS:PORT or unix:/PATH; or set \"listen\" in "
                    "[verbs], if the peer can dial");
  }
}

void check_verbs(ReadTable& table, VerbsSettings& verbs) {
  if (verbs.back_off_min_ms > verbs.back_off_max_ms && !table.was_refused("back_off_min_ms") &&
      !table.was_refused("back_off_max_ms")) {
    table.refuse_value(table.has("back_off_max_ms") ? "back_off_max_ms" : "back_off_min_ms",
                       "\"back_off_max_ms\" is " + std::to_string(verbs.back_off_max_ms) +
                           ", but \"back_off_min_ms\" is " + std::to_string(verbs.back_off_min_ms),
                       "expected the longest pause between two attempts to be no shorter than the "
                       "first");
  }
  const bool is_soft = verbs.driver == "rdma_rxe";
  if (is_soft && !table.has("interface") && !table.was_refused("interface")) {
    table.refuse("\"interface\" is missing in [verbs]",
                 "expected text: the network interface that soft RoCE (rdma_rxe) is put on");
  } else if (!is_soft && !table.was_refused("driver")) {
    table.refuse_keys({"interface"}, "is only for driver = \"rdma_rxe\"",
                      "leave it out: other devices have their interface");
  }
  check_verbs_peers(table, verbs);
}

}  // namespace

static void describe(ConfigurationTable& table, VerbsPeerSettings& settings) {
  table.name("name", &settings.name, 1, kVerbsNameMax)
      .required()
      .unique()
      .help("The `appliance.name` of another appliance.");
  table.address("address", &settings.address)
      .otherwise("none: it dials")
      .unique()
      .help("The address at which that appliance listens.");
}

static void describe(ConfigurationTable& table, VerbsExportSettings& settings) {
  table.name("name", &settings.name, 1, 32)
      .required()
      .unique()
      .help("The name of memory that peers may access, the segment `export:NAME`.");
  table.size("bytes", &settings.bytes, 4 * kKiB, kSizeMaxBytes)
      .required()
      .rule(Rule::kMultipleOf4KiB)
      .help("The size of this memory.");
  table
      .flags("rights",
             {{"read", &settings.may_read},
              {"write", &settings.may_write},
              {"atomic", &settings.may_atomic}},
             1)
      .required()
      .help("The operations that peers may perform on it.");
  table.choice("pages", &settings.pages, kPageChoices)
      .otherwise("those of the pool")
      .help("The page size of this segment.");
}

static void describe(ConfigurationTable& table, VerbsSettings& settings) {
  table.boolean("required", &settings.required)
      .help("Refuses to boot without a usable device; if false, a line in the log says so, and "
            "there are no peers.");
  table.text("device", &settings.device, 1, kDeviceNameMax)
      .otherwise("the first that can be used")
      .help(with_product_name("The RDMA device, as `PROGRAM doctor` lists it: `\"mlx5_0\"`."));
  table.integer("port", &settings.port, 1, 255)
      .otherwise("the first that can be used")
      .help("The device's port.");
  table.shard("shard", &settings.shard).help("The shard that exchanges messages with peers.");
  table.address("listen", &settings.listen)
      .otherwise("it only dials")
      .help("The address that peers dial.");
  table.choice("connect", &settings.connect, kVerbsConnects)
      .help("How queue pairs are connected: over a socket of the runtime, or by rdma_cm. The "
            "same at all peers.");
  table.integer("window", &settings.window, 4, 4096)
      .rule(Rule::kPowerOfTwo)
      .help("The most unconsumed messages in each direction of a connection. The same on both "
            "sides.");
  table.size("message_bytes", &settings.message_bytes, 256, 64 * kKiB)
      .rule(Rule::kPowerOfTwo)
      .help("The longest message, including its header of 32 bytes; longer ones travel by loan. "
            "The same on both sides.");
  table.integer("operations", &settings.operations, 1, 4096)
      .help("The most puts, gets and atomics in flight to one peer.");
  table.size("bounce_bytes", &settings.bounce_bytes, 4 * kKiB, kGiB / 2)
      .rule(Rule::kMultipleOf4KiB)
      .help("Memory for copies of loans that peers cannot access in place; as much again for "
            "puts and gets of memory outside the pool.");
  table.integer("datagrams", &settings.datagrams, 4, 4096)
      .otherwise("no datagrams")
      .rule(Rule::kPowerOfTwo)
      .help("The most datagrams in flight in each direction, with all peers together; without "
            "this key none are sent or received ([verbs.md](verbs.md#messages)).");
  table.integer("max_peers", &settings.max_peers, 1, kVerbsPeerCountMax)
      .otherwise("as many as are listed")
      .help("The number of peers for which queue pairs and memory are planned.");
  table.boolean("trust_windows", &settings.trust_windows)
      .help("Uses memory windows even on a device that does not enforce their bounds.");
  table.integer("back_off_min_ms", &settings.back_off_min_ms, 1, kBackOffMaxMs)
      .help("The pause before a peer is dialed again; it doubles each time.");
  table.integer("back_off_max_ms", &settings.back_off_max_ms, 1, kBackOffMaxMs)
      .help("The longest such pause.");
  table.integer("give_up_ms", &settings.give_up_ms, 1, 86'400'000)
      .help("After this long without a connection, sends report that the peer is gone; dialing "
            "continues.");
  table.choice("remote", &settings.remote, kRemoteHeaps)
      .help("Lets peers read all of the heap, and boot's memory, without asking "
            "([verbs.md](verbs.md)).");
  table.text("driver", &settings.driver, 1, kModuleNameMax)
      .otherwise("part of the kernel")
      .help("The kernel module of the device, for an image: `\"mlx5_ib\"`, or `\"rdma_rxe\"` "
            "for soft RoCE.");
  table.text("interface", &settings.interface, 1, kInterfaceNameMax)
      .otherwise("required for rdma_rxe")
      .help("The network interface that the first process of an image puts soft RoCE on.");
  table.tables("peer", &settings.peers, 0, kVerbsPeerCountMax);
  table.tables("export", &settings.exports, 0, 32);
  table.check([&settings](ReadTable& read) { check_verbs(read, settings); });
}

static void describe_verbs(ConfigurationTable& file, Configuration& all) {
  auto& settings = all.make_part<VerbsSettings>(kVerbsPart);
  file.table("verbs", &settings, false, &settings.enabled);
}

namespace {

// Refuses a peer with the appliance's own name, or with a process's: after that process has joined,
// the name would mean the process. Also refuses two peers whose names rdma_cm cannot tell apart.
void check_peer_names(ReadTable& file, const Configuration& all) {
  const VerbsSettings& settings = verbs_settings(all);
  const std::vector<VerbsPeerSettings>& peers = settings.peers;
  const TomlNode* verbs = find_child(file.node(), "verbs");
  const TomlNode* nodes = verbs == nullptr ? nullptr : find_child(*verbs, "peer");
  if (nodes == nullptr || nodes->children.size() != peers.size()) return;
  for (size_t i = 0; i < peers.size(); ++i) {
    const std::string& name = peers[i].name;
    if (name.empty()) continue;  // refused
    const TomlPosition position = find_child(nodes->children[i], "name")->position;
    if (name == all.appliance.name) {
      file.refuse_at(position, "\"name\" is " + quoted(name) + ", the name of this appliance",
                     "expected the peer's name in its [appliance]");
    }
    if (std::any_of(all.processes.begin(), all.processes.end(),
                    [&](const ProcessSettings& process) { return process.name == name; })) {
      file.refuse_at(position, "\"name\" is " + quoted(name) + ", the name of a [[process]]",
                     "give the process another name: messages are sent to both by name");
    }
    if (settings.connect != VerbsConnect::kRdmaCm) continue;
    for (const VerbsPeerSettings& other : std::span(peers).first(i)) {
      if (hash_of_name(other.name.c_str()) != hash_of_name(name.c_str())) continue;
      file.refuse_at(
          position,
          "\"name\" is " + quoted(name) + ", which has the same hash as " + quoted(other.name),
          "give the peer another name: rdma_cm transfers only a hash (docs/verbs.md)");
    }
  }
}

// The appliance sends its own name to its peers, so that name must fit the record.
void check_names(ReadTable& file, const Configuration& all) {
  if (!verbs_settings(all).enabled) return;
  check_peer_names(file, all);
  const std::string& name = all.appliance.name;
  if (name.size() <= kVerbsNameMax) return;
  file.refuse_at(
      {}, "the name of the appliance, " + quoted(name) + ", is too long for [verbs]",
      "expected name in [appliance]: at most " + std::to_string(kVerbsNameMax) + " bytes");
}

}  // namespace
}  // namespace bedplate

extern "C" const bedplate::ConfigurationPart bedplate_verbs_tables;
const bedplate::ConfigurationPart bedplate_verbs_tables = {&bedplate::describe_verbs,
                                                           &bedplate::check_names, nullptr};
