#include "apps/configuration/configuration_checks.h"

#include <algorithm>
#include <optional>
#include <span>

#include "apps/boot/peers.h"
#include "apps/configuration/configuration_part.h"
#include "apps/configuration/configuration_words.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {
namespace {

void check_eager_region(ReadTable& table, const GroupShape& shape) {
  if (table.was_refused("eager_bytes") || table.was_refused("eager_count")) return;
  const uint64_t least = eager_region_bytes_min(shape.kind);
  if (uint64_t{shape.eager_bytes} * shape.eager_count >= least) return;
  const TomlNode* bytes = find_child(table.node(), "eager_bytes");  // the default is larger
  table.refuse_at(bytes->key_position,
                  "\"eager_bytes\" is " + std::to_string(shape.eager_bytes) +
                      " and \"eager_count\" is " + std::to_string(shape.eager_count),
                  "expected " + std::to_string(least) + " bytes at least in all in the layout " +
                      quoted(group_kind_text(shape.kind)) + ": a put or get takes so much at once");
}

}  // namespace

void check_group(ReadTable& table, GroupSettings& group) {
  GroupShape& shape = group.shape;
  if (table.was_refused("layout") || table.was_refused("members")) return;
  check_eager_region(table, shape);
  if (shape.kind == GroupKind::kMesh) {
    table.refuse_keys(
        {"boxes", "box_bytes", "box_max_count", "send_threshold", "publish_timeout_ms"},
        "has no meaning in a mesh, where each pair has a lane of its own",
        "leave it out, or set layout = \"lazy\"");
    return;
  }
  table.refuse_keys({"multi_threaded"}, "has no meaning in the layout \"lazy\"",
                    "leave it out, or set layout = \"mesh\"");
  if (!table.has("boxes")) shape.box_count = default_box_count(shape.member_count);
}

void check_process(ReadTable& table, ProcessSettings& process) {
  if (table.was_refused("trusted")) return;
  if (process.trusted) {
    // A heap is too much to be planned twice without being asked.
    if (!table.has("spare_count")) process.spare_count = process.heap_bytes == 0;
    table.refuse_keys({"box_bytes"}, "is for processes that are not trusted",
                      "leave it out: the boxes of a group are set in [[group]]");
    if (!table.has("group") && !table.was_refused("group")) {
      table.refuse("\"group\" is missing in [[process]]",
                   "expected group: the name of a group; or trusted = false");
    }
    return;
  }
  table.refuse_keys({"group"}, "is for trusted processes",
                    "leave it out, or set trusted = true: the others share memory with nobody");
  table.refuse_keys({"spare_count"}, "is for trusted processes",
                    "leave it out: nobody but the owner can keep the place of another one");
  if (!process.write.empty()) {
    table.refuse_keys({"write"}, "is for trusted processes",
                      "leave it out: others write their exchange segment and their heap only");
  }
  if (process.members > 1) {
    table.refuse_keys({"members"}, "is " + std::to_string(process.members),
                      "expected 1: a process that is not trusted is one member");
  }
}

namespace {

// Each side of a pair can be found by the other, and there is room for all.
void check_verbs_peers(ReadTable& table, VerbsSettings& verbs) {
  const TomlNode& node = table.node();
  const auto count = static_cast<uint32_t>(verbs.peers.size());
  if (!table.has("max_peers")) {
    verbs.max_peers = std::max(count, 1U);
  } else if (count > verbs.max_peers && !table.was_refused("max_peers")) {
    table.refuse_value("max_peers",
                       "\"max_peers\" is " + std::to_string(verbs.max_peers) + ", and there are " +
                           std::to_string(count) + " peers",
                       "expected so many or more; or leave it out");
  }
  const bool is_by_cm = verbs.connect == VerbsConnect::kRdmaCm;
  const auto refuse_unix = [&](const TomlNode& of, const char* key,
                               const std::optional<SocketAddress>& address) {
    if (!is_by_cm || !address || address->kind != SocketAddress::Kind::kUnix) return;
    table.refuse_at(find_child(of, key)->position, quoted(key) + " is " + quoted(address->text()),
                    "expected tcp:ADDRESS:PORT: rdma_cm knows no other");
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
                    "[verbs], where the peer can dial");
  }
}

}  // namespace

void check_verbs(ReadTable& table, VerbsSettings& verbs) {
  if (verbs.back_off_min_ms > verbs.back_off_max_ms && !table.was_refused("back_off_min_ms") &&
      !table.was_refused("back_off_max_ms")) {
    table.refuse_value(table.has("back_off_max_ms") ? "back_off_max_ms" : "back_off_min_ms",
                       "\"back_off_max_ms\" is " + std::to_string(verbs.back_off_max_ms) +
                           ", less than \"back_off_min_ms\", which is " +
                           std::to_string(verbs.back_off_min_ms),
                       "expected the longest pause between two attempts to be the longer one");
  }
  const bool is_soft = verbs.driver == "rdma_rxe";
  if (is_soft && !table.has("interface") && !table.was_refused("interface")) {
    table.refuse("\"interface\" is missing in [verbs]",
                 "expected text: the network interface that soft RoCE (rdma_rxe) is put on");
  } else if (!is_soft && !table.was_refused("driver")) {
    table.refuse_keys({"interface"}, "is for driver = \"rdma_rxe\"",
                      "leave it out: other devices know their interface");
  }
  check_verbs_peers(table, verbs);
}

namespace {

// Refuses a peer with the appliance's own name, or with a process's: once that has joined, the name
// would mean the process. Also refuses two peers whose names rdma_cm cannot tell apart.
void check_peer_names(ReadTable& file, const Configuration& all) {
  const std::vector<VerbsPeerSettings>& peers = all.verbs.peers;
  const TomlNode* verbs = find_child(file.node(), "verbs");
  const TomlNode* nodes = verbs == nullptr ? nullptr : find_child(*verbs, "peer");
  if (nodes == nullptr || nodes->children.size() != peers.size()) return;
  for (size_t i = 0; i < peers.size(); ++i) {
    const std::string& name = peers[i].name;
    if (name.empty()) continue;  // refused
    const TomlPosition position = find_child(nodes->children[i], "name")->position;
    if (name == all.appliance.name) {
      file.refuse_at(position, "\"name\" is " + quoted(name) + ", the name of this appliance",
                     "expected the name that [appliance] has at the peer");
    }
    if (std::any_of(all.processes.begin(), all.processes.end(),
                    [&](const ProcessSettings& process) { return process.name == name; })) {
      file.refuse_at(position, "\"name\" is " + quoted(name) + ", the name of a [[process]]",
                     "give the process another name: messages are sent to both by name");
    }
    if (all.verbs.connect != VerbsConnect::kRdmaCm) continue;
    for (const VerbsPeerSettings& other : std::span(peers).first(i)) {
      if (hash_of_name(other.name.c_str()) != hash_of_name(name.c_str())) continue;
      file.refuse_at(
          position, "\"name\" is " + quoted(name) + ", which has the hash of " + quoted(other.name),
          "give the peer another name: rdma_cm has room for a hash only (docs/verbs.md)");
    }
  }
}

// Refuses processes that are to use the device if there is no [verbs].
void check_processes_with_verbs(ReadTable& file, const Configuration& all) {
  const TomlNode* processes = find_child(file.node(), "process");
  if (all.verbs.enabled || file.was_refused("verbs") || processes == nullptr) return;
  for (const TomlNode& process : processes->children) {
    const TomlNode* verbs = find_child(process, "verbs");
    if (verbs == nullptr || verbs->kind != TomlNode::Kind::kBoolean || verbs->number == 0) continue;
    file.refuse_at(verbs->position, "\"verbs\" is true, and there is no [verbs]",
                   "write the table [verbs], or leave this out");
  }
}

// The appliance gives its peers its own name, so that must fit.
void check_verbs_names(ReadTable& file, const Configuration& all) {
  check_processes_with_verbs(file, all);
  if (!all.verbs.enabled) return;
  if (peers_part() == nullptr) {
    file.refuse_at(find_child(file.node(), "verbs")->position,
                   "[verbs] is there, and this program has no verbs linked in",
                   "link it with bedplate-verbs (pkg-config; CMake: Bedplate::verbs), or leave the "
                   "table out");
  }
  check_peer_names(file, all);
  constexpr size_t kMax = kVerbsNameBytes - 1;
  const std::string& name = all.appliance.name;
  if (name.size() <= kMax) return;
  file.refuse_at({}, "the name of the appliance, " + quoted(name) + ", is too long for [verbs]",
                 "expected name in [appliance]: at most " + std::to_string(kMax) + " bytes");
}

void check_pool(ReadTable& file, const PoolSettings& pool) {
  const uint64_t page = page_bytes(smallest_page(pool.pages));
  if (file.was_refused("pool.pages") || pool.bytes % page == 0) return;
  const uint64_t below = align_down(pool.bytes, page);
  file.refuse_at(find_child(*find_child(file.node(), "pool"), "bytes")->position,
                 "\"bytes\" is " + std::to_string(pool.bytes) + ", no multiple of the page of " +
                     format_bytes(page).text,
                 "expected " + (below == 0 ? "" : format_bytes(below).text + std::string(" or ")) +
                     format_bytes(below + page).text);
}

// The spare places of each process are members of its group.
void add_spare_members(Configuration& all) {
  for (const ProcessSettings& process : all.processes) {
    if (!process.trusted || process.group >= all.groups.size()) continue;
    GroupSettings& group = all.groups[process.group];
    group.spare_count += process.spare_count * process.members;
    group.shape.member_count += process.spare_count * process.members;
  }
}

// The socket's path has a default that depends on other keys.
void complete_messages(ReadTable& file, Configuration& all) {
  std::string& socket = all.messages.socket;
  if (!socket.empty()) return;
  socket = all.appliance.runtime_directory + "/" + all.appliance.name + ".join";
  if (all.processes.empty() || socket.size() <= kSocketPathMax) return;
  file.refuse_at(
      {}, quoted(socket) + " is too long for a socket: " + std::to_string(socket.size()) + " bytes",
      "set \"socket\" in [messages]: path: begins with /, 1.." + std::to_string(kSocketPathMax) +
          " bytes");
}

}  // namespace

void check_across_tables(ReadTable& file, Configuration& all) {
  check_pool(file, all.pool);
  check_verbs_names(file, all);
  check_parts(file, all);
  add_spare_members(all);
  complete_messages(file, all);
}

}  // namespace bedplate
