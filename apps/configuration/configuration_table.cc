// The keys and tables of a description, and their texts in messages and documents.
#include "apps/configuration/configuration_table.h"

#include <algorithm>
#include <functional>
#include <set>

#include "alloc/confined_heap.h"
#include "apps/configuration/configuration.h"
#include "apps/configuration/configuration_words.h"

namespace bedplate {
namespace {

using Rule = ConfigurationKey::Rule;
using Type = ConfigurationKey::Type;

std::string span_text(const ConfigurationKey& key) {
  const std::string numbers = std::to_string(key.min()) + ".." + std::to_string(key.max());
  switch (key.type()) {
    case Type::kName: return numbers + " of a-z, 0-9 and -";
    case Type::kText: return numbers + " bytes";
    case Type::kPath: return "begins with /, " + numbers + " bytes";
    case Type::kInteger: return numbers;
    case Type::kSize:
      return std::string(format_bytes(key.min()).text) + ".." + format_bytes(key.max()).text;
    case Type::kBoolean: return "true or false";
    case Type::kAddress: return "tcp:ADDRESS:PORT or unix:/PATH";
    case Type::kAddresses: return numbers + " addresses";
    case Type::kOwners: return numbers + " owners of segments";
    case Type::kGrants: return numbers + " owners of segments, except boot";
    case Type::kShard: return "the name of a shard";
    case Type::kGroup: return "the name of a group";
    case Type::kModules: return numbers + " names of kernel modules";
    case Type::kShards: return numbers + " names of shards";
    case Type::kShardsOrAll: return "\"all\", or " + numbers + " names of shards";
    case Type::kIpAddresses: return numbers + " numeric IPv4 or IPv6 addresses";
    case Type::kIpPrefixes:
      return numbers + " numeric IPv4 or IPv6 addresses, each with / and its prefix length";
    case Type::kIpAddress: return "a numeric IPv4 or IPv6 address";
    case Type::kIpPrefix: return "a numeric IPv4 or IPv6 address, / and the prefix length";
    case Type::kChoice:
    case Type::kChoices: break;
  }
  const std::span<const char* const> words = key.words();
  std::string list = (key.is_list() ? numbers + " of " : "") + quoted(words[0]);
  for (size_t i = 1; i < words.size(); ++i) {
    list += (i + 1 < words.size() ? ", " : " or ") + quoted(words[i]);
  }
  return list;
}

const char* to_text(Rule rule) {
  switch (rule) {
    case Rule::kNone: return "";
    case Rule::kMultipleOf4KiB: return ", a multiple of 4 KiB";
    case Rule::kMultipleOfPages: return ", a multiple of the page size";
    case Rule::kPowerOfTwo: return ", a power of two";
    case Rule::kRoundedToPowerOfTwo: return ", rounded up to a power of two";
    case Rule::kOwnHeap: return ", a multiple of 4 KiB, 0 or at least ";
  }
  return "";
}

}  // namespace

const char* ConfigurationKey::type_text() const noexcept {
  switch (type_) {
    case Type::kName: return "name";
    case Type::kText: return "text";
    case Type::kPath: return "path";
    case Type::kInteger: return "integer";
    case Type::kSize: return "size";
    case Type::kBoolean: return "boolean";
    case Type::kChoice: return "choice";
    case Type::kAddress: return "address";
    case Type::kAddresses: return "list of addresses";
    case Type::kOwners:
    case Type::kGrants: return "list of owners";
    case Type::kModules: return "list of modules";
    case Type::kChoices: return "list of choices";
    case Type::kShard: return "shard";
    case Type::kGroup: return "group";
    case Type::kShards:
    case Type::kShardsOrAll: return "list of shards";
    case Type::kIpAddresses: return "list of addresses";
    case Type::kIpPrefixes: return "list of addresses/prefixes";
    case Type::kIpAddress: return "address";
    case Type::kIpPrefix: return "address/prefix";
  }
  return "";
}

std::string ConfigurationKey::range_text() const {
  std::string text = span_text(*this) + to_text(rule_);
  if (rule_ == Rule::kOwnHeap) text += format_bytes(kHeapBytesMin).text;
  return text + (is_unique_ ? ", unique" : "");
}

std::string ConfigurationKey::expectation() const {
  return std::string(type_text()) + ": " + range_text();
}

ConfigurationKey& ConfigurationTable::add(const char* name, Type type, uint64_t min, uint64_t max,
                                          std::string default_text,
                                          ConfigurationKey::Variable variable,
                                          std::vector<const char*> words) {
  return keys_.emplace_back(name, type, min, max, std::move(default_text), std::move(variable),
                            std::move(words));
}

ConfigurationKey& ConfigurationTable::add_text(const char* name, Type type, std::string* to,
                                               uint64_t min, uint64_t max) {
  return add(name, type, min, max, "\"" + *to + "\"",
             {.store = [to](ConfigurationKey::Value& value) { *to = std::move(value.text); }});
}

ConfigurationKey& ConfigurationTable::shards_or_all(const char* name, std::vector<uint32_t>* to) {
  if (!is_sample_) {
    to->clear();  // an earlier file's
    references_.shard_lists.push_back(to);
  }
  const auto store = [this, to](ConfigurationKey::Value& value) {
    to->reserve(kShardCountMax);  // so that elements do not move
    references_.shards.push_back({&to->emplace_back(), std::move(value)});
  };
  return add(name, Type::kShardsOrAll, 1, kShardCountMax, "\"all\"",
             {.store = store, .clear = [to] { to->clear(); }})
      .unique();
}

void ConfigurationTable::add_table(const char* name, bool is_required, uint64_t max_count,
                                   std::function<void(ConfigurationTable&)> describe) {
  children_.push_back({path_of(name), is_required, max_count, std::move(describe)});
}

ConfigurationKey* ConfigurationTable::find_key(std::string_view name) noexcept {
  const auto found = std::find_if(keys_.begin(), keys_.end(), [name](const ConfigurationKey& key) {
    return key.name() == name;
  });
  return found == keys_.end() ? nullptr : &*found;
}

const ConfigurationKey* ConfigurationTable::find_key(std::string_view name) const noexcept {
  return const_cast<ConfigurationTable*>(this)->find_key(name);
}

std::string find_doubled_name(const ConfigurationTable& table) {
  std::set<std::string, std::less<>> names;
  for (const ConfigurationKey& key : table.keys()) {
    if (!names.emplace(key.name()).second) return key.name();
  }
  for (const ConfigurationTable::Child& child : table.children()) {
    if (!names.emplace(child.own_name()).second) return std::string(child.own_name());
  }
  return "";
}

const ConfigurationTable::Child* ConfigurationTable::find_child(
    std::string_view name) const noexcept {
  const auto found = std::find_if(children_.begin(), children_.end(),
                                  [name](const Child& child) { return child.own_name() == name; });
  return found == children_.end() ? nullptr : &*found;
}

}  // namespace bedplate
