// The keys of a configuration: what each is called, what it takes, where its value goes, and the
// words in which messages and docs/configuration.md speak of it.
//
// A new key is one line in kKeys and one row in docs/configuration.md. configuration.cc walks a
// file by these tables; nobody else includes this.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/boot/configuration.h"
#include "apps/boot/toml_reader.h"

namespace bedplate::keys {

inline constexpr uint64_t kVolumeUnitBytes = 4 * kKiB;
inline constexpr uint64_t kModuleNameMax = 55;  // MODULE_NAME_LEN without its NUL
inline constexpr uint64_t kLimitUnitBytes = 64 * kKiB;  // what the heap charges an owner at least

// kGrants: owners, but not boot, of which each process has its own. kAddress: of one socket, that
// can be dialed.
enum class Type { kName, kText, kPath, kInteger, kSize, kBoolean, kPages, kEnforce, kHeap,
                  kSockets, kLayout, kJoinFailure, kMachineEnd, kCrashDump, kAddress, kAddresses,
                  kOwners, kGrants, kModules, kSingleCopy, kRights, kVerbsConnect, kRemoteHeap,
                  kShard, kGroup, kIpAddress, kIpPrefix };

// kOwnHeap: of a process that joins; a multiple of 4 KiB, none (0) or what a heap needs.
enum class Rule { kNone, kUnique, kMultipleOf4KiB, kMultipleOfPages, kPowerOfTwo, kOwnHeap };

struct Value {
  TomlPosition position;
  std::string text;
  uint64_t number = 0;  // bytes of a kSize, index of a choice, 0 or 1 of a kBoolean
  SocketAddress address;
};

// What the file has said so far, and where it said what is checked across keys at the end.
struct Draft {
  struct ShardReference {
    uint32_t* index;
    Value value;
  };
  struct GroupReference {
    size_t process;
    Value value;
  };
  Configuration configuration;
  std::vector<TomlPosition> listen_positions;
  std::vector<TomlPosition> image_listen_positions;
  std::vector<ShardReference> shard_references;
  std::vector<GroupReference> group_references;
  TomlPosition pool_bytes_position;
  std::vector<Value> peer_names;
  std::vector<TomlPosition> process_verbs;  // where a process is to use them
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

struct Table {
  const char* name;
  bool required;       // within its parent
  uint64_t max_count;  // 0: one [table]; else as many [[table]]
  void (*begin)(Configuration&);
};

// In the order of the documentation.
std::span<const Key> all_keys() noexcept;
std::span<const Table> all_tables() noexcept;

// ---- Which keys and tables a table may hold ----

// "blockd.volume" lies in "blockd", "blockd" in "" (the file).
std::string_view parent_of(std::string_view table_name);
std::string_view own_name(const Table& table);
// nullptr when there is none.
const Key* find_key(std::string_view table_name, std::string_view name);
const Table* find_table(std::string_view parent, std::string_view name);

// ---- Words ----

// A value of the file in quotes, cut off where a message would become unreadable.
std::string quoted(std::string_view text);
// Whether the value is a list; `store` is called for each of its elements.
bool is_list(Type type) noexcept;
// The words of which a value, or each element of a list, is one; empty: it may be others.
std::span<const char* const> choices_of(Type type) noexcept;
// "integer: 0..1023, unique".
std::string expectation(const Key& key);
// "[pool]" or "[[shard]]".
std::string label(const Table& table);
// The label of the table `table_name`; of "", "the file".
std::string place(std::string_view table_name);
// Whether `unknown` is most likely `known` with a typing error or two.
bool resembles(std::string_view unknown, std::string_view known);
// The cure for an unknown key: did you mean "pages"? [pool] may have: bytes, pages, ...
std::string known_keys(std::string_view table_name, std::string_view unknown);

}  // namespace bedplate::keys
