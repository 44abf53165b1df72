#include "apps/configuration/configuration_reader.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "apps/configuration/configuration_part.h"
#include "apps/configuration/configuration_values.h"
#include "apps/configuration/configuration_words.h"
#include "apps/configuration/read_table.h"
#include "platform/text.h"

namespace bedplate {
namespace {

// The cure for an unknown key: did you mean "pages"? [pool] may have: bytes, pages, ...
std::string known_keys(const ConfigurationTable& table, const std::string& label,
                       std::string_view unknown) {
  std::string guess;
  std::string list;
  const auto add = [&](std::string_view name, const std::string& shown) {
    add_word(&list, shown);
    if (guess.empty() && resembles(unknown, name)) guess = "did you mean " + quoted(name) + "? ";
  };
  for (const ConfigurationKey& key : table.keys()) add(key.name(), key.name());
  for (const auto& child : table.children()) add(child.own_name(), child.label());
  std::string all = guess + label + " may have: " + list;
  if (all.size() < sizeof Error::cure) return all;
  if (!guess.empty()) {
    guess.pop_back();  // the blank
    return guess;
  }
  // A list that was cut off would look complete.
  constexpr std::string_view kMore = ", ...";
  all.resize(all.rfind(", ", sizeof Error::cure - 1 - kMore.size()));
  return all.append(kMore);
}

// An unknown table may belong to a service that another program has.
std::string unknown_name(const ConfigurationTable& table, const TomlNode& node) {
  const bool is_table = node.kind == TomlNode::Kind::kTable || node.kind == TomlNode::Kind::kArray;
  if (!table.name().empty() || !is_table) return "unknown key " + quoted(node.key);
  return "unknown table " + quoted(node.key) + ": no service of this program has it";
}

// The index of the element of `all` that is called `name`, or nothing. Writes all names to `known`.
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

template <typename T>
void append(std::vector<T>* all, const std::vector<T>& more) {
  all->insert(all->end(), more.begin(), more.end());
}

}  // namespace

void ConfigurationReader::refuse(const ConfigurationTable& table, const Key& key,
                                 TomlPosition position, std::string answer, std::string cure) {
  problems_.mark_refused(table.path_of(key.name()));
  problems_.add(position, std::move(answer), std::move(cure));
}

void ConfigurationReader::read(const TomlNode& root) {
  read_table(file_, "the file", root);
  resolve_shards();
  resolve_groups();
  run_check(file_, root);
}

void ConfigurationReader::check(const TomlNode& root, const std::vector<Kept>& tables) {
  for (const Kept& kept : tables) run_check(*kept.table, *kept.node);
  run_check(file_, root);
}

void ConfigurationReader::run_check(const ConfigurationTable& table, const TomlNode& node) {
  ReadTable whole(table, node, problems_);
  table.run_checks(whole);
}

void ConfigurationReader::read_table(const ConfigurationTable& table, const std::string& label,
                                     const TomlNode& node) {
  for (const TomlNode& child : node.children) {
    if (const Key* key = table.find_key(child.key)) {
      read_key(table, label, *key, child);
    } else if (const Child* inner = table.find_child(child.key)) {
      read_tables(table, *inner, child);
    } else {
      refuse_unknown(table, label, child);
    }
  }
  check_missing(table, label, node);
}

// An unknown table may belong to a part that another program is linked with.
void ConfigurationReader::refuse_unknown(const ConfigurationTable& table, const std::string& label,
                                         const TomlNode& node) {
  const char* missing = table.name().empty() ? missing_part(node.key) : nullptr;
  if (missing == nullptr) {
    return problems_.add(node.key_position, unknown_name(table, node),
                         known_keys(table, label, node.key));
  }
  const std::string part = missing;
  const bool is_list = node.kind == TomlNode::Kind::kArray;
  problems_.add(node.position,
                (is_list ? "[[" + node.key + "]]" : "[" + node.key + "]") +
                    " is there, but this program has no " + part + " linked in",
                "link it with bedplate-" + part + " (pkg-config; CMake: Bedplate::" + part +
                    "), or leave the table out");
}

void ConfigurationReader::check_missing(const ConfigurationTable& table, const std::string& label,
                                        const TomlNode& node) {
  // Reports an unknown key that resembles the missing one instead: the misspelling is the cause,
  // also of errors that checks across keys would find.
  const auto is_misspelt = [&](std::string_view wanted) {
    const bool is_so =
        std::any_of(node.children.begin(), node.children.end(), [&](const TomlNode& child) {
          if (table.find_key(child.key) || table.find_child(child.key)) return false;
          return resembles(child.key, wanted);
        });
    if (is_so) problems_.mark_refused(table.path_of(wanted));
    return is_so;
  };
  for (const Key& key : table.keys()) {
    if (find_child(node, key.name()) != nullptr) continue;
    if (is_misspelt(key.name()) || !key.is_required()) continue;
    problems_.mark_refused(table.path_of(key.name()));
    problems_.add(node.position, quoted(key.name()) + " is missing in " + label,
                  "expected " + key.expectation());
  }
  for (const Child& child : table.children()) {
    if (find_child(node, child.own_name()) != nullptr) continue;
    if (is_misspelt(child.own_name()) || !child.is_required) continue;
    problems_.add(node.position, child.label() + " is missing in " + label,
                  "docs/configuration.md shows the smallest file that works");
  }
}

void ConfigurationReader::read_tables(const ConfigurationTable& parent, const Child& child,
                                      const TomlNode& node) {
  const bool is_list = node.kind == TomlNode::Kind::kArray;
  const bool want_list = child.max_count != 0;
  if (is_list != want_list || (!is_list && node.kind != TomlNode::Kind::kTable)) {
    problems_.mark_refused(parent.path_of(child.own_name()));
    return problems_.add(node.position, quoted(child.own_name()) + " is " + to_text(node.kind),
                         "expected " + child.label() + (want_list ? ", once or more" : ", once"));
  }
  if (!want_list) return read_one_table(child, node);
  if (node.children.empty()) {
    problems_.add(
        node.position, quoted(child.own_name()) + " is an empty array",
        "expected " + child.label() + ", 1.." + std::to_string(child.max_count) + " times");
  }
  uint64_t count = 0;
  for (const TomlNode& element : node.children) {
    if (++count > child.max_count) {
      return problems_.add(element.position,
                           child.label() + " number " + std::to_string(count) + " is too many",
                           "expected 1.." + std::to_string(child.max_count) + " of them");
    }
    read_one_table(child, element);
  }
}

void ConfigurationReader::read_one_table(const Child& child, const TomlNode& node) {
  if (node.kind != TomlNode::Kind::kTable) {
    return problems_.add(node.position, child.label() + " is " + to_text(node.kind),
                         "expected a table");
  }
  kept_.push_back({std::make_shared<ConfigurationTable>(child.name), &node, child.max_count != 0});
  ConfigurationTable& table = *kept_.back().table;
  child.describe(table);
  if (const std::string twice = find_doubled_name(table); !twice.empty()) {
    return problems_.add(node.position,
                         child.label() + " is described with two keys or tables " + quoted(twice),
                         "this is a defect of the service: give each a name of its own");
  }
  read_table(table, child.label(), node);
  run_check(table, node);
  append(&references_.shards, table.references().shards);
  append(&references_.groups, table.references().groups);
  append(&references_.shard_lists, table.references().shard_lists);
}

void ConfigurationReader::read_key(const ConfigurationTable& table, const std::string& label,
                                   const Key& key, const TomlNode& node) {
  if (key.is_list()) return read_list(table, key, node);
  Key::Value value;
  value.position = node.position;
  if (const std::string wrong = read_value(key, node, &value); !wrong.empty()) {
    return refuse(table, key, node.position, quoted(key.name()) + " " + wrong,
                  "expected " + key.expectation());
  }
  if (key.is_unique() && !claim(table, label, key, value)) return;
  key.store(value);
}

void ConfigurationReader::read_list(const ConfigurationTable& table, const Key& key,
                                    const TomlNode& node) {
  const bool is_addresses = key.type() == Key::Type::kAddresses;
  const bool is_all = key.type() == Key::Type::kShardsOrAll && node.kind == TomlNode::Kind::kText &&
                      node.text == "all";
  if (is_all) return key.clear();
  const uint64_t count = node.children.size();
  if (node.kind != TomlNode::Kind::kArray || count < key.min() || count > key.max()) {
    const std::string wrong =
        node.kind != TomlNode::Kind::kArray
            ? std::string(" is ") + to_text(node.kind)
            : " has " + std::to_string(count) + (is_addresses ? " addresses" : " elements");
    return refuse(table, key, node.position, quoted(key.name()) + wrong,
                  "expected " + key.expectation());
  }
  key.clear();
  std::vector<Key::Value> earlier;
  for (size_t i = 0; i < node.children.size(); ++i) {
    const TomlNode& element = node.children[i];
    Key::Value value;
    value.position = element.position;
    if (is_addresses) {
      if (!read_address(table, key, element, &value)) continue;
      const auto clashing = std::find_if(earlier.begin(), earlier.end(), [&](const auto& other) {
        return addresses_clash(other.address, value.address);
      });
      if (clashing != earlier.end()) {
        problems_.add(value.position,
                      quoted(value.address.text()) + " clashes with " +
                          quoted(clashing->address.text()) + " at line " +
                          std::to_string(clashing->position.line),
                      "expected another port or path (0.0.0.0 and [::] use a port on all "
                      "addresses)");
      }
    } else {
      std::string wrong = read_value(key, element, &value);
      const bool is_there =
          std::any_of(node.children.begin(), node.children.begin() + static_cast<ptrdiff_t>(i),
                      [&](const TomlNode& other) { return other.text == element.text; });
      if (wrong.empty() && is_there) wrong = "appears twice";
      if (!wrong.empty()) {
        refuse(table, key, element.position,
               "element " + std::to_string(i + 1) + " of " + quoted(key.name()) + " " + wrong,
               "expected " + key.expectation());
        continue;
      }
    }
    earlier.push_back(value);
    key.store(value);
  }
}

bool ConfigurationReader::read_address(const ConfigurationTable& table, const Key& key,
                                       const TomlNode& node, Key::Value* value) {
  if (const std::string wrong = read_value(key, node, value); !wrong.empty()) {
    refuse(table, key, node.position, "an address in " + quoted(key.name()) + " " + wrong,
           "write it as \"tcp:ADDRESS:PORT\", \"unix:/PATH\" or \"activation:\"");
    return false;
  }
  Result<SocketAddress> address = parse_socket_address(node.text);
  if (!address) {
    refuse(table, key, node.position, address.error().answer, address.error().cure);
    return false;
  }
  value->address = address.take();
  return true;
}

// Returns false, and adds a problem, if an earlier table has the same value.
bool ConfigurationReader::claim(const ConfigurationTable& table, const std::string& label,
                                const Key& key, const Key::Value& value) {
  const bool is_number = key.type() == Key::Type::kInteger;
  std::string text = is_number ? std::to_string(value.number) : value.text;
  std::string path = table.path_of(key.name());
  for (const Taken& taken : taken_) {
    if (taken.key != path || taken.text != text) continue;
    problems_.add(value.position,
                  quoted(key.name()) + " " + (is_number ? text : quoted(text)) +
                      " is already used by the " + label + " at line " +
                      std::to_string(taken.position.line),
                  "expected a different one: each " + label + " has its own");
    return false;
  }
  taken_.push_back({std::move(path), std::move(text), value.position});
  return true;
}

void ConfigurationReader::resolve_shards() {
  const std::vector<ShardSettings>& shards = configuration_.shards;
  if (shards.empty() || problems_.was_refused("shard.name")) return;
  for (const ConfigurationTable::Reference& reference : references_.shards) {
    std::string known;
    const auto found = find_named(shards, reference.value.text, &known);
    *reference.index = found.value_or(0);
    if (found) continue;
    problems_.add(reference.value.position, "no shard has the name " + quoted(reference.value.text),
                  "expected one of: " + known);
  }
  for (std::vector<uint32_t>* list : references_.shard_lists) {
    if (!list->empty()) continue;
    list->resize(shards.size());
    std::iota(list->begin(), list->end(), 0U);
  }
}

void ConfigurationReader::resolve_groups() {
  if (problems_.was_refused("group") || problems_.was_refused("group.name")) return;
  for (const ConfigurationTable::Reference& reference : references_.groups) {
    std::string known;
    const auto found = find_named(configuration_.groups, reference.value.text, &known);
    *reference.index = found.value_or(0);
    if (found) continue;
    problems_.add(reference.value.position, "no group has the name " + quoted(reference.value.text),
                  known.empty() ? "add a [[group]] with this name" : "expected one of: " + known);
  }
}

}  // namespace bedplate
