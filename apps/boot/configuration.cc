// Reads a configuration: one walk over the file by the tables of configuration_keys.h, then the
// checks across keys.
//
// The walk goes on after a problem, because the first one found need not be the first one in the
// file. A check across keys is left out where one of its sides was refused already: it would only
// blame the wrong line.
#include "apps/boot/configuration.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "apps/boot/configuration_keys.h"
#include "apps/boot/toml_reader.h"
#include "platform/file.h"

namespace bedplate {
namespace {

using namespace keys;

constexpr size_t kFileMaxBytes = kMiB;

// ---- Values: each returns what is wrong, or nothing ----

std::string check_length(const Key& key, const std::string& text) {
  if (text.size() >= key.min && text.size() <= key.max) return "";
  return "is " + (text.empty() ? "empty" : std::to_string(text.size()) + " bytes long");
}

std::string read_text(const Key& key, const TomlNode& node, Value* value) {
  if (node.kind != TomlNode::Kind::kText) return std::string("is ") + kind_text(node.kind);
  if (std::any_of(node.text.begin(), node.text.end(), is_control)) {
    return "contains a control character";
  }
  value->text = node.text;
  switch (key.type) {
    case Type::kName: {
      constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789-";
      if (node.text.find_first_not_of(kLetters) != std::string::npos) {
        return "is " + quoted(node.text);
      }
      return check_length(key, node.text);
    }
    case Type::kPath:
      if (!node.text.empty() && !node.text.starts_with('/')) return "is " + quoted(node.text);
      return check_length(key, node.text);
    case Type::kText: return check_length(key, node.text);
    default: return "";
  }
}

std::string read_choice(const Key& key, const TomlNode& node, Value* value) {
  if (const std::string wrong = read_text(key, node, value); !wrong.empty()) return wrong;
  const std::span<const char* const> choices = choices_of(key.type);
  for (const char* choice : choices) {
    // Sizes compare as sizes: "2MiB" is "2 MiB".
    const auto bytes = parse_bytes(choice);
    if (node.text == choice || (bytes && bytes == parse_bytes(node.text))) return "";
    ++value->number;
  }
  return "is " + quoted(node.text);
}

std::string read_integer(const Key& key, const TomlNode& node, Value* value) {
  if (node.kind != TomlNode::Kind::kInteger) return std::string("is ") + kind_text(node.kind);
  value->number = static_cast<uint64_t>(node.number);
  const bool fits = node.number >= 0 && value->number >= key.min && value->number <= key.max;
  return fits ? "" : "is " + std::to_string(node.number);
}

std::string read_size(const Key& key, const TomlNode& node, Value* value) {
  if (node.kind == TomlNode::Kind::kInteger) {
    if (const std::string wrong = read_integer(key, node, value); !wrong.empty()) return wrong;
  } else {
    if (const std::string wrong = read_text(key, node, value); !wrong.empty()) return wrong;
    const std::optional<uint64_t> bytes = parse_bytes(node.text);
    if (!bytes || *bytes < key.min || *bytes > key.max) return "is " + quoted(node.text);
    value->number = *bytes;
  }
  if (key.rule != Rule::kMultipleOf4KiB || value->number % kVolumeUnitBytes == 0) return "";
  return "is " + std::to_string(value->number) + " bytes, no multiple of 4 KiB";
}

std::string read_value(const Key& key, const TomlNode& node, Value* value) {
  switch (key.type) {
    case Type::kInteger: return read_integer(key, node, value);
    case Type::kSize: return read_size(key, node, value);
    case Type::kPages:
    case Type::kEnforce:
    case Type::kHeap:
    case Type::kSockets: return read_choice(key, node, value);
    case Type::kBoolean:
      value->number = static_cast<uint64_t>(node.number);
      if (node.kind == TomlNode::Kind::kBoolean) return "";
      return std::string("is ") + kind_text(node.kind);
    default: return read_text(key, node, value);
  }
}

// ---- The walk ----

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
  void read_address(const Key& key, const TomlNode& node);
  bool claim(const Key& key, const Value& value);
  void check_missing(std::string_view name, const TomlNode& node);
  void check_pool();
  void check_listen_addresses();
  void resolve_shards();

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
  const auto is_there = [&node](std::string_view wanted) {
    return std::any_of(node.children.begin(), node.children.end(),
                       [wanted](const TomlNode& child) { return child.key == wanted; });
  };
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
  read_table(table.name, node);
}

void Reader::read_key(const Key& key, const TomlNode& node) {
  if (key.type == Type::kAddresses) {
    const uint64_t count = node.children.size();
    if (node.kind != TomlNode::Kind::kArray || count < key.min || count > key.max) {
      return refuse(key, node.position,
                    quoted(key.name) + (node.kind != TomlNode::Kind::kArray
                                            ? std::string(" is ") + kind_text(node.kind)
                                            : " has " + std::to_string(count) + " addresses"),
                    "expected " + expectation(key));
    }
    for (const TomlNode& element : node.children) read_address(key, element);
    return;
  }
  Value value;
  value.position = node.position;
  if (const std::string wrong = read_value(key, node, &value); !wrong.empty()) {
    return refuse(key, node.position, quoted(key.name) + " " + wrong,
                  "expected " + expectation(key));
  }
  if (key.rule == Rule::kUnique && !claim(key, value)) return;
  key.store(draft_, value);
}

void Reader::read_address(const Key& key, const TomlNode& node) {
  Value value;
  value.position = node.position;
  if (const std::string wrong = read_text(key, node, &value); !wrong.empty()) {
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

void Reader::check_across_keys() {
  check_pool();
  check_listen_addresses();
  resolve_shards();
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

// Whether the kernel would refuse to listen at both. IPv6 sockets are opened for IPv6 only, so the
// two families do not meet.
bool addresses_clash(const SocketAddress& left, const SocketAddress& right) {
  using Kind = SocketAddress::Kind;
  if (left.kind != right.kind) return false;
  if (left.kind == Kind::kActivation) return true;
  if (left.kind == Kind::kUnix) return left.path == right.path;
  if (left.port != right.port) return false;
  const int family = left.kind == Kind::kTcp4 ? AF_INET : AF_INET6;
  const std::array<uint8_t, sizeof(in6_addr)> any{};  // 0.0.0.0 and :: are all zeros
  auto left_bytes = any, right_bytes = any;
  inet_pton(family, left.host.c_str(), left_bytes.data());
  inet_pton(family, right.host.c_str(), right_bytes.data());
  return left_bytes == right_bytes || left_bytes == any || right_bytes == any;
}

void Reader::check_listen_addresses() {
  const std::vector<SocketAddress>& listen = draft_.configuration.blockd.listen;
  for (size_t later = 1; later < listen.size(); ++later) {
    for (size_t earlier = 0; earlier < later; ++earlier) {
      if (!addresses_clash(listen[earlier], listen[later])) continue;
      add_problem(draft_.listen_positions[later],
                  quoted(listen[later].text()) + " clashes with " +
                      quoted(listen[earlier].text()) + " at line " +
                      std::to_string(draft_.listen_positions[earlier].line),
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
