// Reads a configuration: one walk over the file by the tables of configuration_keys.h, then the
// checks across keys.
//
// The walk goes on after a problem, because the first one found need not be the first one in the
// file. A check across keys is left out where one of its sides was refused already: it would only
// blame the wrong line.
#include "apps/boot/configuration.h"

#include <algorithm>
#include <optional>

#include "apps/boot/configuration_keys.h"
#include "apps/boot/configuration_values.h"
#include "apps/boot/toml_reader.h"
#include "platform/file.h"
#include "transport/ip_address.h"

namespace bedplate {
namespace {

using namespace keys;

constexpr size_t kFileMaxBytes = kMiB;

// ---- The walk ----

const TomlNode* find_child(const TomlNode& node, std::string_view key) {
  for (const TomlNode& child : node.children) {
    if (child.key == key) return &child;
  }
  return nullptr;
}

struct Problem {
  TomlPosition position;
  std::string answer;
  std::string cure;
};

class Reader {
 public:
  void read_table(std::string_view name, const TomlNode& node);
  void check_across_keys();
  Result<Configuration> finish(const char* path);

 private:
  void add_problem(TomlPosition position, std::string answer, std::string cure) {
    // Of several at one place the one that was found first stays: the order of kKeys.
    if (first_problem_ && first_problem_->position <= position) return;
    first_problem_ = {position, std::move(answer), std::move(cure)};
  }
  void refuse(const Key& key, TomlPosition position, std::string answer, std::string cure) {
    refused_.push_back(&key);
    add_problem(position, std::move(answer), std::move(cure));
  }
  bool was_refused(std::string_view table_name, std::string_view name) const {
    const Key* key = find_key(table_name, name);
    return std::count(refused_.begin(), refused_.end(), key) != 0;
  }
  void read_tables(const Table& table, const TomlNode& node);
  void read_one_table(const Table& table, const TomlNode& node);
  void read_key(const Key& key, const TomlNode& node);
  void read_list(const Key& key, const TomlNode& node);
  void read_address(const Key& key, const TomlNode& node);
  bool claim(const Key& key, const Value& value);
  void check_missing(std::string_view name, const TomlNode& node);
  void refuse_keys(const TomlNode& node, std::initializer_list<const char*> names,
                   const std::string& answer, const std::string& cure);
  void check_group(const TomlNode& node);
  void check_process(const TomlNode& node);
  void check_pool();
  void check_listen_addresses(const std::vector<SocketAddress>& listen,
                              const std::vector<TomlPosition>& positions);
  void check_network(const TomlNode& node);
  void check_crash(const TomlNode& node);
  void resolve_shards();
  void resolve_groups();
  void complete_messages();

  struct Taken {
    const Key* key;
    std::string text;
    TomlPosition position;
  };
  Draft draft_;
  std::vector<Taken> taken_;              // values of keys that must be unique
  std::vector<const Key*> refused_;       // keys without a usable value somewhere
  std::optional<Problem> first_problem_;  // in the file's order
};

// The table `name` ("": the whole file).
void Reader::read_table(std::string_view name, const TomlNode& node) {
  for (const TomlNode& child : node.children) {
    if (const Key* key = find_key(name, child.key)) {
      read_key(*key, child);
    } else if (const Table* table = find_table(name, child.key)) {
      read_tables(*table, child);
    } else {
      add_problem(child.key_position, "unknown key " + quoted(child.key),
                  known_keys(name, child.key));
    }
  }
  check_missing(name, node);
}

void Reader::check_missing(std::string_view name, const TomlNode& node) {
  const auto is_there = [&node](std::string_view key) { return find_child(node, key) != nullptr; };
  // An unknown key that resembles the missing one is reported instead: it is the cause.
  const auto is_misspelt = [&](std::string_view wanted) {
    return std::any_of(node.children.begin(), node.children.end(), [&](const TomlNode& child) {
      return !find_key(name, child.key) && !find_table(name, child.key) &&
             resembles(child.key, wanted);
    });
  };
  for (const Key& key : all_keys()) {
    if (name != key.table || key.default_text != nullptr || is_there(key.name)) continue;
    refused_.push_back(&key);
    if (is_misspelt(key.name)) continue;
    add_problem(node.position, quoted(key.name) + " is missing in " + place(name),
                "expected " + expectation(key));
  }
  for (const Table& table : all_tables()) {
    if (name != parent_of(table.name) || !table.required) continue;
    if (is_there(own_name(table)) || is_misspelt(own_name(table))) continue;
    add_problem(node.position, label(table) + " is missing in " + place(name),
                "docs/configuration.md shows the smallest file that works");
  }
}

void Reader::read_tables(const Table& table, const TomlNode& node) {
  const bool is_list = node.kind == TomlNode::Kind::kArray;
  const bool want_list = table.max_count != 0;
  if (is_list != want_list || (!is_list && node.kind != TomlNode::Kind::kTable)) {
    add_problem(node.position, quoted(own_name(table)) + " is " + kind_text(node.kind),
                "expected " + label(table) + (want_list ? ", once for each" : ", once"));
    return;
  }
  if (!want_list) return read_one_table(table, node);
  if (node.children.empty()) {
    add_problem(node.position, quoted(own_name(table)) + " is an empty array",
                "expected " + label(table) + ", 1.." + std::to_string(table.max_count) + " times");
  }
  uint64_t count = 0;
  for (const TomlNode& child : node.children) {
    if (++count > table.max_count) {
      return add_problem(child.position,
                         label(table) + " number " + std::to_string(count) + " is too many",
                         "expected 1.." + std::to_string(table.max_count) + " of them");
    }
    read_one_table(table, child);
  }
}

void Reader::read_one_table(const Table& table, const TomlNode& node) {
  if (node.kind != TomlNode::Kind::kTable) {
    return add_problem(node.position, label(table) + " is " + kind_text(node.kind),
                       "expected a table");
  }
  table.begin(draft_.configuration);
  // A list that is there replaces the default.
  if (find_child(node, "single_copy")) draft_.configuration.messages.single_copy.clear();
  read_table(table.name, node);
  if (table.name == std::string_view("group")) check_group(node);
  if (table.name == std::string_view("process")) check_process(node);
  if (table.name == std::string_view("network")) check_network(node);
  if (table.name == std::string_view("crash")) check_crash(node);
}

void Reader::read_key(const Key& key, const TomlNode& node) {
  if (is_list(key.type)) return read_list(key, node);
  Value value;
  value.position = node.position;
  if (const std::string wrong = read_value(key, node, &value); !wrong.empty()) {
    return refuse(key, node.position, quoted(key.name) + " " + wrong,
                  "expected " + expectation(key));
  }
  if (key.rule == Rule::kUnique && !claim(key, value)) return;
  key.store(draft_, value);
}

void Reader::read_list(const Key& key, const TomlNode& node) {
  const char* elements = key.type == Type::kAddresses ? " addresses" : " elements";
  const uint64_t count = node.children.size();
  if (node.kind != TomlNode::Kind::kArray || count < key.min || count > key.max) {
    return refuse(key, node.position,
                  quoted(key.name) + (node.kind != TomlNode::Kind::kArray
                                          ? std::string(" is ") + kind_text(node.kind)
                                          : " has " + std::to_string(count) + elements),
                  "expected " + expectation(key));
  }
  for (size_t i = 0; i < node.children.size(); ++i) {
    const TomlNode& element = node.children[i];
    if (key.type == Type::kAddresses) {
      read_address(key, element);
      continue;
    }
    Value value;
    value.position = element.position;
    std::string wrong = read_value(key, element, &value);
    for (size_t earlier = 0; wrong.empty() && earlier < i; ++earlier) {
      if (node.children[earlier].text == element.text) wrong = "is there twice";
    }
    if (wrong.empty()) {
      key.store(draft_, value);
    } else {
      refuse(key, element.position,
             "element " + std::to_string(i + 1) + " of " + quoted(key.name) + " " + wrong,
             "expected " + expectation(key));
    }
  }
}

void Reader::read_address(const Key& key, const TomlNode& node) {
  Value value;
  value.position = node.position;
  if (const std::string wrong = read_value(key, node, &value); !wrong.empty()) {
    return refuse(key, node.position, "an address in " + quoted(key.name) + " " + wrong,
                  "write it as \"tcp:ADDRESS:PORT\", \"unix:/PATH\" or \"activation:\"");
  }
  Result<SocketAddress> address = parse_socket_address(node.text);
  if (!address) {
    return refuse(key, node.position, address.error().answer, address.error().cure);
  }
  value.address = address.take();
  key.store(draft_, value);
}

// False, with a problem, when an earlier table has the value already.
bool Reader::claim(const Key& key, const Value& value) {
  const bool is_number = key.type == Type::kInteger;
  std::string text = is_number ? std::to_string(value.number) : value.text;
  for (const Taken& taken : taken_) {
    if (taken.key != &key || taken.text != text) continue;
    add_problem(value.position,
                quoted(key.name) + " " + (is_number ? text : quoted(text)) + " is taken by the " +
                    place(key.table) + " at line " + std::to_string(taken.position.line),
                "expected another one: each " + place(key.table) + " has its own");
    return false;
  }
  taken_.push_back({&key, std::move(text), value.position});
  return true;
}

// ---- Checks across keys ----

// The keys `names` make no sense in the table `node`.
void Reader::refuse_keys(const TomlNode& node, std::initializer_list<const char*> names,
                         const std::string& answer, const std::string& cure) {
  for (const char* name : names) {
    if (const TomlNode* child = find_child(node, name)) {
      add_problem(child->key_position, quoted(name) + " " + answer, cure);
    }
  }
}

void Reader::check_group(const TomlNode& node) {
  GroupShape& shape = draft_.configuration.groups.back().shape;
  if (was_refused("group", "layout") || was_refused("group", "members")) return;
  if (shape.kind == GroupKind::kMesh) {
    refuse_keys(node, {"boxes", "box_bytes", "box_max_count", "send_threshold"},
                "has no meaning in a mesh, where each pair has a lane of its own",
                "leave it out, or set layout = \"lazy\"");
    return;
  }
  refuse_keys(node, {"multi_threaded"}, "has no meaning in the layout \"lazy\"",
              "leave it out, or set layout = \"mesh\"");
  if (find_child(node, "boxes") == nullptr) shape.box_count = default_box_count(shape.member_count);
}

void Reader::check_process(const TomlNode& node) {
  const ProcessSettings& process = draft_.configuration.processes.back();
  if (was_refused("process", "trusted")) return;
  if (process.trusted) {
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
  if (address && way->family == address->family) return;
  add_problem(gateway->position,
              "\"gateway\" is " + quoted(network.gateway) + ", and the interface has " +
                  (address ? "an address of the other family" : "no address"),
              "expected an \"address\" from which the gateway can be reached");
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
  }
}

void Reader::check_across_keys() {
  check_pool();
  const BlockdSettings& blockd = draft_.configuration.blockd;
  check_listen_addresses(blockd.listen, draft_.listen_positions);
  check_listen_addresses(blockd.image_listen, draft_.image_listen_positions);
  resolve_shards();
  resolve_groups();
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
    const std::string& name = reference.value.text;
    const auto found =
        std::find_if(shards.begin(), shards.end(),
                     [&name](const ShardSettings& shard) { return shard.name == name; });
    *reference.index = static_cast<uint32_t>(found - shards.begin());
    if (found != shards.end()) continue;
    std::string known;
    for (const ShardSettings& shard : shards) known += (known.empty() ? "" : ", ") + shard.name;
    add_problem(reference.value.position, "no shard has the name " + quoted(name),
                "expected one of: " + known);
  }
}

void Reader::resolve_groups() {
  Configuration& configuration = draft_.configuration;
  const std::vector<GroupSettings>& groups = configuration.groups;
  if (was_refused("group", "name")) return;
  std::string known;
  for (const GroupSettings& group : groups) known += (known.empty() ? "" : ", ") + group.name;
  for (const Draft::GroupReference& reference : draft_.group_references) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const GroupSettings& group) {
      return group.name == reference.value.text;
    });
    configuration.processes[reference.process].group =
        static_cast<uint32_t>(found - groups.begin());
    if (found != groups.end()) continue;
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

Result<Configuration> Reader::finish(const char* path) {
  if (!first_problem_) return std::move(draft_.configuration);
  const Problem& problem = *first_problem_;
  return configuration_error(path, problem.position, problem.answer, problem.cure);
}

}  // namespace

Result<Configuration> parse_configuration(std::string_view text, const char* path) {
  if (text.empty()) {
    return configuration_error(path, {}, "the file is empty",
                               "docs/configuration.md shows the smallest file that works");
  }
  if (text.size() > kFileMaxBytes) {
    return configuration_error(path, {}, "the file has more than 1 MiB",
                               "expected a configuration, which is a few KiB of TOML text");
  }
  Result<TomlNode> root = read_toml(text, path);
  BP_TRY(root);
  Reader reader;
  reader.read_table("", root.value());
  reader.check_across_keys();
  return reader.finish(path);
}

Result<Configuration> load_configuration(const char* path) {
  std::string text(kFileMaxBytes + 2, '\0');  // one byte too many shows, plus the terminator
  Result<size_t> bytes = read_text_file(path, text.data(), text.size());
  if (!bytes) {
    Error error = bytes.error();
    error.kind = ErrorKind::kConfiguration;
    error.set_doing("reading the configuration %s", path);
    error.set_cure("name a readable file with the appliance's configuration");
    return error;
  }
  text.resize(bytes.value());
  return parse_configuration(text, path);
}

}  // namespace bedplate
