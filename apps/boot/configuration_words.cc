// The words in which messages and docs/configuration.md speak of the keys.
#include "apps/boot/configuration_keys.h"

#include <algorithm>
#include <numeric>

#include "alloc/confined_heap.h"
#include "platform/text.h"

namespace bedplate::keys {
namespace {

const char* type_text(Type type) {
  switch (type) {
    case Type::kName: return "name";
    case Type::kText: return "text";
    case Type::kPath: return "path";
    case Type::kInteger: return "integer";
    case Type::kSize: return "size";
    case Type::kBoolean: return "boolean";
    case Type::kPages:
    case Type::kEnforce:
    case Type::kHeap:
    case Type::kSockets:
    case Type::kLayout:
    case Type::kJoinFailure:
    case Type::kMachineEnd:
    case Type::kCrashDump:
    case Type::kVerbsConnect:
    case Type::kRemoteHeap: return "choice";
    case Type::kAddress: return "address";
    case Type::kAddresses: return "list of addresses";
    case Type::kOwners:
    case Type::kGrants: return "list of owners";
    case Type::kModules: return "list of modules";
    case Type::kSingleCopy:
    case Type::kRights: return "list of choices";
    case Type::kShard: return "shard";
    case Type::kGroup: return "group";
    case Type::kIpAddress: return "address";
    case Type::kIpPrefix: return "address/prefix";
  }
  return "";
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
    case Type::kAddress: return "tcp:ADDRESS:PORT or unix:/PATH";
    case Type::kAddresses: return numbers + " addresses";
    case Type::kOwners: return numbers + " owners of segments";
    case Type::kGrants: return numbers + " owners of segments but boot";
    case Type::kShard: return "the name of a shard";
    case Type::kGroup: return "the name of a group";
    case Type::kModules: return numbers + " names of kernel modules";
    case Type::kIpAddress: return "a numeric IPv4 or IPv6 address";
    case Type::kIpPrefix: return "a numeric IPv4 or IPv6 address, / and the network's bits";
    default: break;
  }
  const std::span<const char* const> choices = choices_of(key.type);
  std::string words = (is_list(key.type) ? numbers + " of " : "") + quoted(choices[0]);
  for (size_t i = 1; i < choices.size(); ++i) {
    words += (i + 1 < choices.size() ? ", " : " or ") + quoted(choices[i]);
  }
  return words;
}

std::string range_text(const Key& key) {
  switch (key.rule) {
    case Rule::kNone: break;
    case Rule::kUnique: return span_text(key) + ", unique";
    case Rule::kMultipleOf4KiB: return span_text(key) + ", a multiple of 4 KiB";
    case Rule::kMultipleOfPages: return span_text(key) + ", a multiple of the page";
    case Rule::kPowerOfTwo: return span_text(key) + ", a power of two";
    case Rule::kOwnHeap:
      return span_text(key) + ", a multiple of 4 KiB, 0 or at least " +
             format_bytes(kHeapBytesMin).text;
  }
  return span_text(key);
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

}  // namespace

std::string quoted(std::string_view text) {
  constexpr size_t kShownBytes = 64;
  if (text.size() <= kShownBytes) return "\"" + std::string(text) + "\"";
  size_t bytes = kShownBytes;
  while ((static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return "\"" + std::string(text.substr(0, bytes)) + "...\"";
}

std::string expectation(const Key& key) {
  return std::string(type_text(key.type)) + ": " + range_text(key);
}

std::string label(const Table& table) {
  const std::string name = table.name;
  return table.max_count == 0 ? "[" + name + "]" : "[[" + name + "]]";
}

std::string place(std::string_view table_name) {
  for (const Table& table : all_tables()) {
    if (table_name == table.name) return label(table);
  }
  return "the file";
}

bool resembles(std::string_view unknown, std::string_view known) {
  constexpr size_t kTypingErrors = 2;
  return unknown.size() <= known.size() + kTypingErrors &&
         edit_distance(unknown, known) <= std::min(kTypingErrors, known.size() - 1);
}

std::string known_keys(std::string_view table_name, std::string_view unknown) {
  std::string guess;
  std::string list;
  const auto add = [&](std::string_view name, const std::string& shown) {
    add_word(&list, shown);
    if (guess.empty() && resembles(unknown, name)) guess = "did you mean " + quoted(name) + "? ";
  };
  for (const Key& key : all_keys()) {
    if (table_name == key.table) add(key.name, key.name);
  }
  for (const Table& table : all_tables()) {
    if (table_name == parent_of(table.name)) add(own_name(table), label(table));
  }
  return guess + place(table_name) + " may have: " + list;
}

}  // namespace bedplate::keys

namespace bedplate {

std::vector<ConfigurationKey> configuration_keys() {
  std::vector<ConfigurationKey> described;
  for (const keys::Key& key : keys::all_keys()) {
    described.push_back({std::string(key.table) + "." + key.name, keys::type_text(key.type),
                    key.default_text != nullptr ? key.default_text : "required",
                    keys::range_text(key)});
  }
  return described;
}

}  // namespace bedplate
