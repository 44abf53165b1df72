#include <algorithm>

#include <sys/socket.h>

#include "apps/boot/configuration_reader.h"
#include "apps/boot/configuration_values.h"
#include "platform/text.h"
#include "transport/ip_address.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate::keys {
namespace {

// The index of the one of `all` that is called `name`, or nothing; `known` gets all names.
template <typename Named>
std::optional<uint32_t> find_named(const std::vector<Named>& all, const std::string& name,
                                   std::string* known) {
  std::optional<uint32_t> found;
  for (uint32_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) found = i;
    add_word(known, all[i].name);
  }
  return found;
}

}  // namespace

// The keys `names` make no sense in the table `node`.
void Reader::refuse_keys(const TomlNode& node, std::initializer_list<const char*> names,
                         const std::string& answer, const std::string& cure) {
  for (const char* name : names) {
    if (const TomlNode* child = find_child(node, name)) {
      add_problem(child->key_position, quoted(name) + " " + answer, cure);
    }
  }
}

void Reader::check_eager_region(const TomlNode& node, const GroupShape& shape) {
  if (was_refused("group", "eager_bytes") || was_refused("group", "eager_count")) return;
  const uint64_t least = eager_region_bytes_min(shape.kind);
  if (uint64_t{shape.eager_bytes} * shape.eager_count >= least) return;
  const TomlNode* bytes = find_child(node, "eager_bytes");  // the default is larger
  add_problem(bytes->key_position,
              "\"eager_bytes\" is " + std::to_string(shape.eager_bytes) +
                  " and \"eager_count\" is " + std::to_string(shape.eager_count),
              "expected " + std::to_string(least) + " bytes at least in all in the layout " +
                  quoted(group_kind_text(shape.kind)) + ": a put or get takes so much at once");
}

void Reader::check_group(const TomlNode& node) {
  GroupShape& shape = draft_.configuration.groups.back().shape;
  if (was_refused("group", "layout") || was_refused("group", "members")) return;
  check_eager_region(node, shape);
  if (shape.kind == GroupKind::kMesh) {
    refuse_keys(node,
                {"boxes", "box_bytes", "box_max_count", "send_threshold", "publish_timeout_ms"},
                "has no meaning in a mesh, where each pair has a lane of its own",
                "leave it out, or set layout = \"lazy\"");
    return;
  }
  refuse_keys(node, {"multi_threaded"}, "has no meaning in the layout \"lazy\"",
              "leave it out, or set layout = \"mesh\"");
  if (find_child(node, "boxes") == nullptr) shape.box_count = default_box_count(shape.member_count);
}

void Reader::check_process(const TomlNode& node) {
  ProcessSettings& process = draft_.configuration.processes.back();
  if (was_refused("process", "trusted")) return;
  if (process.trusted) {
    // A heap is too much to be planned twice without being asked.
    if (find_child(node, "spare_count") == nullptr) process.spare_count = process.heap_bytes == 0;
    refuse_keys(node, {"box_bytes"}, "is for processes that are not trusted",
                "leave it out: the boxes of a group are set in [[group]]");
    if (find_child(node, "group") == nullptr) {
      add_problem(node.position, "\"group\" is missing in [[process]]",
                  "expected group: the name of a group; or trusted = false");
    }
    return;
  }
  refuse_keys(node, {"group"}, "is for trusted processes",
              "leave it out, or set trusted = true: the others share memory with nobody");
  refuse_keys(node, {"spare_count"}, "is for trusted processes",
              "leave it out: nobody but the owner can keep the place of another one");
  if (!process.write.empty()) {
    refuse_keys(node, {"write"}, "is for trusted processes",
                "leave it out: others write their exchange segment and their heap only");
  }
  if (process.members > 1) {
    refuse_keys(node, {"members"}, "is " + std::to_string(process.members),
                "expected 1: a process that is not trusted is one member");
  }
}

void Reader::check_network(const TomlNode& node) {
  const NetworkSettings& network = draft_.configuration.networks.back();
  if (was_refused("network", "address") || was_refused("network", "gateway")) return;
  const TomlNode* gateway = find_child(node, "gateway");
  if (gateway == nullptr) return;
  const auto address = parse_ip_prefix(network.address);
  const auto way = parse_ip_address(network.gateway);
  // A link-local one is reached from any address.
  const IpPrefix link_local = {{AF_INET6, {0xfe, 0x80}}, 10};
  const bool is_of_family = address && way->family == address->family;
  if (!is_of_family || !(address->contains(*way) || link_local.contains(*way))) {
    const std::string wrong = !address        ? "no address"
                              : !is_of_family ? "an address of the other family"
                                              : "the address " + quoted(network.address);
    return add_problem(gateway->position,
                       "\"gateway\" is " + quoted(network.gateway) +
                           ", and the interface has " + wrong,
                       "expected an \"address\" from which the gateway can be reached");
  }
  const std::vector<NetworkSettings>& all = draft_.configuration.networks;
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    const auto other = parse_ip_address(all[i].gateway);
    if (!other || other->family != way->family) continue;
    add_problem(gateway->position,
                "\"gateway\" " + quoted(network.gateway) + " is the second of its family: " +
                    all[i].interface + " has one already",
                "expected one way out for IPv4, and one for IPv6: leave out the others");
  }
}

void Reader::check_crash(const TomlNode& node) {
  const CrashSettings& crash = draft_.configuration.crash;
  if (was_refused("crash", "dump") || was_refused("crash", "owners")) return;
  if (crash.dump != CrashDump::kOwners && !crash.owners.empty()) {
    refuse_keys(node, {"owners"}, "is for dump = \"owners\"", "leave it out, or set that");
  } else if (crash.dump == CrashDump::kOwners && crash.owners.empty()) {
    add_problem(node.position, "\"owners\" is missing in [crash]",
                "expected list of owners: the segments that the dump keeps");
  }
  if (crash.dump == CrashDump::kNone) {
    refuse_keys(node, {"device"}, "is for a dump", "leave it out, or set \"dump\"");
  } else if (find_child(node, "device") == nullptr) {
    add_problem(node.position, "\"device\" is missing in [crash]",
                "expected path: the block device that a dump is written to; or dump = \"none\"");
  } else if (crash.device.find_first_of(" \t%") != std::string::npos) {
    // The kernel splits its command at blanks, and has a meaning for %.
    add_problem(find_child(node, "device")->position,
                "\"device\" is " + quoted(crash.device) + ", which the kernel would not take as " +
                    "one word",
                "expected a path without blanks and %");
  }
}

void Reader::check_verbs(const TomlNode& node) {
  VerbsSettings& verbs = draft_.configuration.verbs;
  const TomlNode* max_ms = find_child(node, "back_off_max_ms");
  const TomlNode* min_ms = find_child(node, "back_off_min_ms");
  if (verbs.back_off_min_ms > verbs.back_off_max_ms && !was_refused("verbs", "back_off_min_ms") &&
      !was_refused("verbs", "back_off_max_ms")) {
    add_problem((max_ms != nullptr ? max_ms : min_ms)->position,
                "\"back_off_max_ms\" is " + std::to_string(verbs.back_off_max_ms) +
                    ", less than \"back_off_min_ms\", which is " +
                    std::to_string(verbs.back_off_min_ms),
                "expected the longest pause between two attempts to be the longer one");
  }
  const bool is_soft = verbs.driver == "rdma_rxe";
  if (is_soft && find_child(node, "interface") == nullptr) {
    add_problem(node.position, "\"interface\" is missing in [verbs]",
                "expected text: the network interface that soft RoCE (rdma_rxe) is put on");
  } else if (!is_soft && !was_refused("verbs", "driver")) {
    refuse_keys(node, {"interface"}, "is for driver = \"rdma_rxe\"",
                "leave it out: other devices know their interface");
  }
  check_verbs_peers(node);
}

// Each side of a pair can be found by the other, and there is room for all.
void Reader::check_verbs_peers(const TomlNode& node) {
  VerbsSettings& verbs = draft_.configuration.verbs;
  const auto count = static_cast<uint32_t>(verbs.peers.size());
  const TomlNode* max_peers = find_child(node, "max_peers");
  if (max_peers == nullptr) {
    verbs.max_peers = std::max(count, 1U);
  } else if (count > verbs.max_peers && !was_refused("verbs", "max_peers")) {
    add_problem(max_peers->position, "\"max_peers\" is " + std::to_string(verbs.max_peers) +
                                         ", and there are " + std::to_string(count) + " peers",
                "expected so many or more; or leave it out");
  }
  const bool is_by_cm = verbs.connect == VerbsConnect::kRdmaCm;
  const auto refuse_unix = [&](const TomlNode& table, const char* key,
                               const std::optional<SocketAddress>& address) {
    if (!is_by_cm || !address || address->kind != SocketAddress::Kind::kUnix) return;
    add_problem(find_child(table, key)->position, quoted(key) + " is " + quoted(address->text()),
                "expected tcp:ADDRESS:PORT: rdma_cm knows no other");
  };
  refuse_unix(node, "listen", verbs.listen);
  const TomlNode* peers = find_child(node, "peer");
  if (peers == nullptr || peers->children.size() != count) return;
  for (size_t i = 0; i < count; ++i) {
    const TomlNode& peer = peers->children[i];
    refuse_unix(peer, "address", verbs.peers[i].address);
    if (find_child(peer, "address") || find_child(node, "listen")) continue;
    add_problem(peer.position, "\"address\" is missing in [[verbs.peer]]",
                "expected address: tcp:ADDRESS:PORT or unix:/PATH; or set \"listen\" in [verbs], "
                "where the peer can dial");
  }
}

// Towards its peers the appliance has its own name.
void Reader::check_verbs_names() {
  const Configuration& configuration = draft_.configuration;
  const std::string& name = configuration.appliance.name;
  if (!configuration.verbs.enabled) {
    for (const TomlPosition& position : draft_.process_verbs) {
      add_problem(position, "\"verbs\" is true, and there is no [verbs]",
                  "write the table [verbs], or leave this out");
    }
    return;
  }
  const bool is_by_cm = configuration.verbs.connect == VerbsConnect::kRdmaCm;
  for (size_t i = 0; i < draft_.peer_names.size(); ++i) {
    const Value& peer = draft_.peer_names[i];
    if (peer.text == name) {
      add_problem(peer.position, "\"name\" is " + quoted(name) + ", the name of this appliance",
                  "expected the name that [appliance] has at the peer");
    }
    for (size_t earlier = 0; is_by_cm && earlier < i; ++earlier) {
      const std::string& other = draft_.peer_names[earlier].text;
      if (hash_of_name(other.c_str()) != hash_of_name(peer.text.c_str())) continue;
      add_problem(peer.position,
                  "\"name\" is " + quoted(peer.text) + ", which has the hash of " + quoted(other),
                  "give the peer another name: rdma_cm has room for a hash only (docs/verbs.md)");
    }
  }
  const uint64_t max = find_key("verbs.peer", "name")->max;
  if (name.size() <= max) return;
  add_problem({}, "the name of the appliance, " + quoted(name) + ", is too long for [verbs]",
              "expected name in [appliance]: at most " + std::to_string(max) + " bytes");
}

void Reader::check_across_keys() {
  check_pool();
  const BlockdSettings& blockd = draft_.configuration.blockd;
  check_listen_addresses(blockd.listen, draft_.listen_positions);
  check_listen_addresses(blockd.image_listen, draft_.image_listen_positions);
  resolve_shards();
  resolve_groups();
  check_verbs_names();
  complete_messages();
}

void Reader::check_pool() {
  const PoolSettings& pool = draft_.configuration.pool;
  const uint64_t page = page_bytes(smallest_page(pool.pages));
  if (was_refused("pool", "pages") || pool.bytes % page == 0) return;
  const uint64_t below = align_down(pool.bytes, page);
  add_problem(draft_.pool_bytes_position,
              "\"bytes\" is " + std::to_string(pool.bytes) + ", no multiple of the page of " +
                  format_bytes(page).text,
              "expected " + (below == 0 ? "" : format_bytes(below).text + std::string(" or ")) +
                  format_bytes(below + page).text);
}

void Reader::check_listen_addresses(const std::vector<SocketAddress>& listen,
                                    const std::vector<TomlPosition>& positions) {
  for (size_t later = 1; later < listen.size(); ++later) {
    for (size_t earlier = 0; earlier < later; ++earlier) {
      if (!addresses_clash(listen[earlier], listen[later])) continue;
      add_problem(positions[later],
                  quoted(listen[later].text()) + " clashes with " +
                      quoted(listen[earlier].text()) + " at line " +
                      std::to_string(positions[earlier].line),
                  "expected another port or path (0.0.0.0 and [::] take a port everywhere)");
      break;
    }
  }
}

void Reader::resolve_shards() {
  Configuration& configuration = draft_.configuration;
  const std::vector<ShardSettings>& shards = configuration.shards;
  if (shards.empty() || was_refused("shard", "name")) return;
  configuration.blockd.volumes_shard = static_cast<uint32_t>(shards.size() - 1);
  for (const Draft::ShardReference& reference : draft_.shard_references) {
    std::string known;
    const auto found = find_named(shards, reference.value.text, &known);
    *reference.index = found.value_or(0);
    if (found) continue;
    add_problem(reference.value.position, "no shard has the name " + quoted(reference.value.text),
                "expected one of: " + known);
  }
}

void Reader::resolve_groups() {
  Configuration& configuration = draft_.configuration;
  const std::vector<GroupSettings>& groups = configuration.groups;
  if (was_refused("group", "name")) return;
  for (const Draft::GroupReference& reference : draft_.group_references) {
    std::string known;
    const auto found = find_named(groups, reference.value.text, &known);
    ProcessSettings& process = configuration.processes[reference.process];
    process.group = found.value_or(0);
    if (found) {
      GroupSettings& group = configuration.groups[*found];
      group.spare_count += process.spare_count * process.members;
      group.shape.member_count += process.spare_count * process.members;
      continue;
    }
    add_problem(reference.value.position, "no group has the name " + quoted(reference.value.text),
                known.empty() ? "write a [[group]] with this name" : "expected one of: " + known);
  }
}

// The socket's path has a default that depends on other keys.
void Reader::complete_messages() {
  const ApplianceSettings& appliance = draft_.configuration.appliance;
  std::string& socket = draft_.configuration.messages.socket;
  if (!socket.empty()) return;
  socket = appliance.runtime_directory + "/" + appliance.name + ".join";
  const Key& key = *find_key("messages", "socket");
  if (draft_.configuration.processes.empty() || socket.size() <= key.max) return;
  add_problem({}, quoted(socket) + " is too long for a socket: " + std::to_string(socket.size()) +
                      " bytes",
              "set \"socket\" in [messages]: " + expectation(key));
}

}  // namespace bedplate::keys
