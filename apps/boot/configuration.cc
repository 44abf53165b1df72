// Reads a configuration: a table of keys, one walk over the file, then the checks across keys.
//
// A new key is one line in kKeys and one row in docs/configuration.md. The walk goes on after a
// problem, because the first one found need not be the first one in the file. A check across keys
// is left out where one of its sides was refused already: it would only blame the wrong line.
#include "apps/boot/configuration.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "apps/boot/toml_reader.h"
#include "platform/file.h"

namespace bedplate {
namespace {

constexpr size_t kFileMaxBytes = kMiB;
constexpr uint64_t kSizeMaxBytes = 64 * kTiB;  // half of what x86-64 can address; sums fit 64 bits
constexpr uint64_t kVolumeUnitBytes = 4 * kKiB;

// ---- The keys ----

enum class Type { kName, kText, kPath, kInteger, kSize, kBoolean, kPage, kSockets, kAddresses,
                  kShard };

enum class Rule { kNone, kUnique, kMultipleOf4KiB, kMultipleOfPage };

struct Value {
  TomlPosition position;
  std::string text;
  uint64_t number = 0;  // bytes of a kSize, index of a choice, 0 or 1 of a kBoolean
  SocketAddress address;
};

struct Problem {
  TomlPosition position;
  std::string answer;
  std::string cure;
};

struct Key;

// What the walk has understood so far.
struct Draft {
  struct Taken {
    const Key* key;
    std::string text;
    TomlPosition position;
  };
  struct ShardReference {
    uint32_t* index;
    Value value;
  };
  Configuration configuration;
  std::vector<Taken> taken;                // values of keys that must be unique
  std::vector<TomlPosition> listen_positions;
  std::vector<ShardReference> shard_references;
  TomlPosition pool_bytes_position;
  std::vector<const Key*> refused;  // keys without a usable value somewhere
  std::optional<Problem> first_problem;  // in the file's order
};

struct Key {
  const char* table;
  const char* name;
  Type type;
  const char* default_text;  // as docs/configuration.md writes it; nullptr: required
  uint64_t min;              // of the value; of names, texts and paths: bytes; of lists: elements
  uint64_t max;
  Rule rule;
  void (*store)(Draft&, Value&);  // of lists: called for each element
};

constexpr const char* kRequired = nullptr;
constexpr const char* kPages[] = {"4 KiB", "2 MiB", "1 GiB"};
constexpr PageSize kPageSizes[] = {PageSize::k4KiB, PageSize::k2MiB, PageSize::k1GiB};
constexpr const char* kSockets[] = {"io_uring-or-epoll", "io_uring", "epoll"};
constexpr SocketBackendChoice kBackends[] = {SocketBackendChoice::kIoUringOrEpoll,
                                             SocketBackendChoice::kIoUring,
                                             SocketBackendChoice::kEpoll};
static_assert(std::size(kPages) == std::size(kPageSizes));
static_assert(std::size(kSockets) == std::size(kBackends));

// Stores a number into `member` of the table that `part` names.
#define BP_NUMBER(part, member) \
  [](Draft& d, Value& v) { part.member = static_cast<decltype(part.member)>(v.number); }
#define BP_TEXT(part, member) [](Draft& d, Value& v) { part.member = std::move(v.text); }

constexpr Key kKeys[] = {
    {"appliance", "name", Type::kName, kRequired, 1, 32, Rule::kNone,
     BP_TEXT(d.configuration.appliance, name)},
    {"appliance", "runtime_directory", Type::kPath, "\"/run/bedplate\"", 1, 255, Rule::kNone,
     BP_TEXT(d.configuration.appliance, runtime_directory)},
    {"appliance", "drain_timeout_ms", Type::kInteger, "5000", 0, 600'000, Rule::kNone,
     BP_NUMBER(d.configuration.appliance, drain_timeout_ms)},

    {"pool", "bytes", Type::kSize, kRequired, 4 * kKiB, kSizeMaxBytes, Rule::kMultipleOfPage,
     [](Draft& d, Value& v) {
       d.configuration.pool.bytes = v.number;
       d.pool_bytes_position = v.position;
     }},
    {"pool", "page", Type::kPage, "\"2 MiB\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { d.configuration.pool.page = kPageSizes[v.number]; }},
    {"pool", "heap_min_bytes", Type::kSize, "\"32 MiB\"", 0, kSizeMaxBytes, Rule::kNone,
     BP_NUMBER(d.configuration.pool, heap_min_bytes)},

    {"event_loop", "sockets", Type::kSockets, "\"io_uring-or-epoll\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { d.configuration.event_loop.sockets = kBackends[v.number]; }},
    {"event_loop", "spin_us", Type::kInteger, "50", 0, 1'000'000, Rule::kNone,
     BP_NUMBER(d.configuration.event_loop, spin_us)},

    {"shard", "name", Type::kName, kRequired, 1, 32, Rule::kUnique,
     BP_TEXT(d.configuration.shards.back(), name)},
    {"shard", "cpu", Type::kInteger, kRequired, 0, 1023, Rule::kUnique,
     BP_NUMBER(d.configuration.shards.back(), cpu)},

    {"blockd", "listen", Type::kAddresses, kRequired, 1, 8, Rule::kUnique,
     [](Draft& d, Value& v) {
       d.configuration.blockd.listen.push_back(std::move(v.address));
       d.listen_positions.push_back(v.position);
     }},
    {"blockd", "connections_shard", Type::kShard, "the first shard", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) {
       d.shard_references.push_back({&d.configuration.blockd.connections_shard, std::move(v)});
     }},
    {"blockd", "volumes_shard", Type::kShard, "the last shard", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) {
       d.shard_references.push_back({&d.configuration.blockd.volumes_shard, std::move(v)});
     }},
    {"blockd", "max_connections", Type::kInteger, "64", 1, 4096, Rule::kNone,
     BP_NUMBER(d.configuration.blockd, max_connections)},
    {"blockd", "requests_per_connection", Type::kInteger, "64", 1, 1024, Rule::kNone,
     BP_NUMBER(d.configuration.blockd, requests_per_connection)},
    {"blockd", "handshake_timeout_ms", Type::kInteger, "10000", 100, 600'000, Rule::kNone,
     BP_NUMBER(d.configuration.blockd, handshake_timeout_ms)},

    {"blockd.volume", "name", Type::kText, kRequired, 1, 255, Rule::kUnique,
     BP_TEXT(d.configuration.blockd.volumes.back(), name)},
    {"blockd.volume", "bytes", Type::kSize, kRequired, kVolumeUnitBytes, kSizeMaxBytes,
     Rule::kMultipleOf4KiB, BP_NUMBER(d.configuration.blockd.volumes.back(), bytes)},
    {"blockd.volume", "read_only", Type::kBoolean, "false", 0, 0, Rule::kNone,
     BP_NUMBER(d.configuration.blockd.volumes.back(), read_only)},
};

#undef BP_NUMBER
#undef BP_TEXT

struct Table {
  const char* name;
  bool required;       // within its parent
  uint64_t max_count;  // 0: one [table]; else as many [[table]]
  void (*begin)(Configuration&);
};

constexpr Table kTables[] = {
    {"appliance", true, 0, [](Configuration&) {}},
    {"pool", true, 0, [](Configuration&) {}},
    {"event_loop", false, 0, [](Configuration&) {}},
    {"shard", true, 64, [](Configuration& c) { c.shards.emplace_back(); }},
    {"blockd", false, 0, [](Configuration& c) { c.blockd.enabled = true; }},
    {"blockd.volume", true, 64, [](Configuration& c) { c.blockd.volumes.emplace_back(); }},
};

// ---- Words for messages and for the documentation ----

// A value of the file in quotes, cut off where a message would become unreadable.
std::string quoted(std::string_view text) {
  constexpr size_t kShownBytes = 64;
  if (text.size() <= kShownBytes) return "\"" + std::string(text) + "\"";
  size_t bytes = kShownBytes;
  while ((static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return "\"" + std::string(text.substr(0, bytes)) + "...\"";
}

const char* type_text(Type type) {
  switch (type) {
    case Type::kName: return "name";
    case Type::kText: return "text";
    case Type::kPath: return "path";
    case Type::kInteger: return "integer";
    case Type::kSize: return "size";
    case Type::kBoolean: return "boolean";
    case Type::kPage:
    case Type::kSockets: return "choice";
    case Type::kAddresses: return "list of addresses";
    case Type::kShard: return "shard";
  }
  return "";
}

std::span<const char* const> choices_of(Type type) {
  if (type == Type::kPage) return kPages;
  BP_ASSERT(type == Type::kSockets);
  return kSockets;
}

std::string span_text(const Key& key) {
  const std::string numbers = std::to_string(key.min) + ".." + std::to_string(key.max);
  switch (key.type) {
    case Type::kName: return numbers + " of a-z, 0-9 and -";
    case Type::kText: return numbers + " bytes";
    case Type::kPath: return "begins with /, " + numbers + " bytes";
    case Type::kInteger: return numbers;
    case Type::kSize:
      return std::string(format_bytes(key.min).text) + ".." + format_bytes(key.max).text;
    case Type::kBoolean: return "true or false";
    case Type::kAddresses: return numbers + " addresses";
    case Type::kShard: return "the name of a shard";
    case Type::kPage:
    case Type::kSockets: break;
  }
  const auto quote = [](const char* choice) { return quoted(choice); };
  std::array<std::string, 3> words;
  const std::span<const char* const> choices = choices_of(key.type);
  BP_ASSERT(choices.size() == words.size());
  std::transform(choices.begin(), choices.end(), words.begin(), quote);
  return words[0] + ", " + words[1] + " or " + words[2];
}

std::string range_text(const Key& key) {
  switch (key.rule) {
    case Rule::kNone: break;
    case Rule::kUnique: return span_text(key) + ", unique";
    case Rule::kMultipleOf4KiB: return span_text(key) + ", a multiple of 4 KiB";
    case Rule::kMultipleOfPage: return span_text(key) + ", a multiple of page";
  }
  return span_text(key);
}

// "integer: 0..1023, unique".
std::string expectation(const Key& key) {
  return std::string(type_text(key.type)) + ": " + range_text(key);
}

std::string label(const Table& table) {
  const std::string name = table.name;
  return table.max_count == 0 ? "[" + name + "]" : "[[" + name + "]]";
}

std::string place(std::string_view table_name) {
  for (const Table& table : kTables) {
    if (table_name == table.name) return label(table);
  }
  return "the file";
}

// ---- Which keys and tables a table may hold ----

// "blockd.volume" lies in "blockd", "blockd" in "" (the file).
std::string_view parent_of(std::string_view table_name) {
  const size_t dot = table_name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : table_name.substr(0, dot);
}

std::string_view own_name(const Table& table) {
  const std::string_view name = table.name;
  const std::string_view parent = parent_of(name);
  return parent.empty() ? name : name.substr(parent.size() + 1);
}

const Key* find_key(std::string_view table_name, std::string_view name) {
  for (const Key& key : kKeys) {
    if (table_name == key.table && name == key.name) return &key;
  }
  return nullptr;
}

const Table* find_table(std::string_view parent, std::string_view name) {
  for (const Table& table : kTables) {
    if (parent_of(table.name) == parent && own_name(table) == name) return &table;
  }
  return nullptr;
}

// How many letters must be inserted, removed or replaced to make `left` into `right`.
size_t edit_distance(std::string_view left, std::string_view right) {
  std::vector<size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= left.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= right.size(); ++j) {
      const size_t replaced = diagonal + (left[i - 1] == right[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

// Whether `unknown` is most likely `known` with a typing error or two.
bool resembles(std::string_view unknown, std::string_view known) {
  constexpr size_t kTypingErrors = 2;
  return unknown.size() <= known.size() + kTypingErrors &&
         edit_distance(unknown, known) <= std::min(kTypingErrors, known.size() - 1);
}

// The cure for an unknown key: did you mean "page"? [pool] may have: bytes, page, heap_min_bytes.
std::string known_keys(std::string_view table_name, std::string_view unknown) {
  std::string guess;
  std::string list;
  const auto add = [&](std::string_view name, const std::string& shown) {
    list += (list.empty() ? "" : ", ") + shown;
    if (guess.empty() && resembles(unknown, name)) guess = "did you mean " + quoted(name) + "? ";
  };
  for (const Key& key : kKeys) {
    if (table_name == key.table) add(key.name, key.name);
  }
  for (const Table& table : kTables) {
    if (table_name == parent_of(table.name)) add(own_name(table), label(table));
  }
  return guess + place(table_name) + " may have: " + list;
}

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
    case Type::kPage:
    case Type::kSockets: return read_choice(key, node, value);
    case Type::kBoolean:
      value->number = static_cast<uint64_t>(node.number);
      if (node.kind == TomlNode::Kind::kBoolean) return "";
      return std::string("is ") + kind_text(node.kind);
    default: return read_text(key, node, value);
  }
}

// ---- The walk ----

class Reader {
 public:
  void read_table(std::string_view name, const TomlNode& node);
  void check_across_keys();
  Result<Configuration> finish(const char* path);

 private:
  void add_problem(TomlPosition position, std::string answer, std::string cure) {
    // Of several at one place the one that was found first stays: the order of kKeys.
    if (draft_.first_problem && draft_.first_problem->position <= position) return;
    draft_.first_problem = {position, std::move(answer), std::move(cure)};
  }
  void refuse(const Key& key, TomlPosition position, std::string answer, std::string cure) {
    draft_.refused.push_back(&key);
    add_problem(position, std::move(answer), std::move(cure));
  }
  bool was_refused(std::string_view table_name, std::string_view name) const {
    const Key* key = find_key(table_name, name);
    return std::count(draft_.refused.begin(), draft_.refused.end(), key) != 0;
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

  Draft draft_;
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
  for (const Key& key : kKeys) {
    if (name != key.table || key.default_text != nullptr || is_there(key.name)) continue;
    draft_.refused.push_back(&key);
    if (is_misspelt(key.name)) continue;
    add_problem(node.position, quoted(key.name) + " is missing in " + place(name),
                "expected " + expectation(key));
  }
  for (const Table& table : kTables) {
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
  for (const Draft::Taken& taken : draft_.taken) {
    if (taken.key != &key || taken.text != text) continue;
    add_problem(value.position,
                quoted(key.name) + " " + (is_number ? text : quoted(text)) + " is taken by the " +
                    place(key.table) + " at line " + std::to_string(taken.position.line),
                "expected another one: each " + place(key.table) + " has its own");
    return false;
  }
  draft_.taken.push_back({&key, std::move(text), value.position});
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
  const uint64_t page = page_bytes(pool.page);
  if (was_refused("pool", "page") || pool.bytes % page == 0) return;
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
  if (!draft_.first_problem) return std::move(draft_.configuration);
  const Problem& problem = *draft_.first_problem;
  return configuration_error(path, problem.position, problem.answer, problem.cure);
}

}  // namespace

std::vector<ConfigurationKey> configuration_keys() {
  std::vector<ConfigurationKey> keys;
  for (const Key& key : kKeys) {
    keys.push_back({std::string(key.table) + "." + key.name, type_text(key.type),
                    key.default_text != nullptr ? key.default_text : "required",
                    range_text(key)});
  }
  return keys;
}

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
