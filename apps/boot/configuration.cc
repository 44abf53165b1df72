#include "apps/boot/configuration.h"

#include <algorithm>

#include <sys/stat.h>

#include "apps/boot/configuration_reader.h"
#include "apps/boot/configuration_values.h"
#include "platform/file.h"

namespace bedplate {
namespace keys {

const TomlNode* find_child(const TomlNode& node, std::string_view key) noexcept {
  for (const TomlNode& child : node.children) {
    if (child.key == key) return &child;
  }
  return nullptr;
}

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
  if (table.name == std::string_view("verbs")) check_verbs(node);
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

Result<Configuration> Reader::finish(const char* path) {
  if (!first_problem_) return std::move(draft_.configuration);
  const Problem& problem = *first_problem_;
  return configuration_error(path, problem.position, problem.answer, problem.cure);
}

}  // namespace keys

namespace {
constexpr size_t kFileMaxBytes = kMiB;
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
  keys::Reader reader;
  reader.read_table("", root.value());
  reader.check_across_keys();
  return reader.finish(path);
}

Result<Configuration> load_configuration(const char* path) {
  const auto refused = [path](Error error) {
    error.kind = ErrorKind::kConfiguration;
    error.set_doing("reading the configuration %s", path);
    return error.set_cure("name a readable file with the appliance's configuration");
  };
  // Opening a FIFO waits for its other end, reading a pipe or a terminal for what comes.
  struct stat status {};
  if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    return refused(Error{}.set_answer("it is no regular file"));
  }
  std::string text(kFileMaxBytes + 2, '\0');  // one byte too many shows, plus the terminator
  Result<size_t> bytes = read_text_file(path, text.data(), text.size());
  if (!bytes) return refused(bytes.error());
  text.resize(bytes.value());
  return parse_configuration(text, path);
}

}  // namespace bedplate
