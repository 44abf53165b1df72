// The configuration of an appliance: one TOML file, read once at boot, parsed strictly.
//
// Strict means: an unknown key, a wrong type, a value out of range or a name that nothing defines
// is an error with file, line and column; nothing is guessed and nothing is ignored. Parsing
// starts nothing and touches no device: the same function serves `run`, `plan` and `check`.
// docs/configuration.md describes every key, with its range; a test compares its list with the
// parser's. The structs here hold the values of the keys. They are read once and not changed
// afterwards: any thread may read them. Units are in the names.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pinned_pool/plan.h"
#include "platform/result.h"
#include "platform/units.h"
#include "transport/shm/membership/group_shape.h"
#include "transport/single_copy/single_copy.h"

namespace bedplate {

inline constexpr uint32_t kShardCountMax = 64;

// The memory that the file expects malloc to hand out; it cannot choose (alloc/
// interception_decision.h): malloc is older than the file.
enum class HeapExpectation { kAny, kPool, kOrdinary };

enum class SocketBackendChoice { kIoUring, kEpoll, kIoUringOrEpoll };

struct ApplianceSettings {
  std::string name;
  std::string runtime_directory = "/run/bedplate";
  uint32_t drain_timeout_ms = 5000;
  uint32_t trace_requests = 4096;  // the last of each shard; 0: none
  std::string user;                // that root is given up for once memory is taken; empty: none
};

// The guard that refuses to take memory of the sealed pool away, beside libc's calls.
enum class Enforcement { kKernel, kSeccomp };

struct PoolSettings {
  uint64_t bytes = 0;
  PageWish pages = PageWish::k2MiB;
  Enforcement enforce = Enforcement::kKernel;
  uint64_t heap_min_bytes = 32 * kMiB;
  std::optional<PageWish> heap_pages = {};  // nothing: as `pages`
  std::optional<int> heap_node = {};        // nothing: the node of the first shard's core
};

struct AllocSettings {
  HeapExpectation expect = HeapExpectation::kAny;
};

// How much one owner of heap memory may have (alloc/heap_owner.h).
struct LimitSettings {
  std::string owner;
  uint64_t bytes = 0;
};

struct EventLoopSettings {
  SocketBackendChoice sockets = SocketBackendChoice::kIoUringOrEpoll;
  uint32_t spin_us = 50;
  uint32_t stall_ms = 100;  // 0: off
};

struct ShardSettings {
  std::string name;
  int cpu = 0;
};

// A trust group with its FIFOs.
struct GroupSettings {
  std::string name;
  GroupShape shape;          // its member_count is with the spare places
  uint32_t spare_count = 0;  // of its members: they stand in for those of dead processes
};

// A kind of process that may join, and the share of each such process.
struct ProcessSettings {
  std::string name;
  std::string user;  // a name, or a number in digits
  bool trusted = true;
  uint32_t group = 0;        // of a trusted one: index into Configuration::groups
  uint32_t max_count = 1;    // how many may be joined at once
  uint32_t spare_count = 0;  // trusted: more places, used while those of the dead are not free yet
  uint32_t members = 1;      // of each
  uint64_t heap_bytes = 0;   // of each; 0: it has none
  std::vector<std::string> read = {};   // owners of segments
  std::vector<std::string> write = {};  // the same
  uint32_t box_bytes = 4096;            // of the exchange group of an untrusted one
  bool verbs = false;                   // it registers what it maps with the device of [verbs], too

  uint32_t place_count() const noexcept { return max_count + (trusted ? spare_count : 0); }
};

enum class JoinFailure { kContinue, kStop };

struct MessagesSettings {
  std::string socket;  // where processes join
  std::vector<SingleCopyKind> single_copy = {std::begin(kSingleCopyKinds),
                                             std::end(kSingleCopyKinds)};  // in the order wanted
  JoinFailure on_join_failure = JoinFailure::kContinue;  // what the others do about it
};

inline constexpr uint64_t kSocketPathMax = 107;  // sun_path, without its NUL

// Which of a service's listeners serve clients without TLS: those on loopback and Unix sockets,
// all, or none.
enum class PlainText { kLocal, kAllowed, kRefused };

class Service;

struct Configuration {
  ApplianceSettings appliance;
  PoolSettings pool;
  AllocSettings alloc;
  std::vector<LimitSettings> limits;
  EventLoopSettings event_loop;
  std::vector<ShardSettings> shards;
  std::vector<GroupSettings> groups;
  std::vector<ProcessSettings> processes;
  MessagesSettings messages;
  std::vector<Service*> services;  // those whose table is there, in the order of the program's list
  // By the name of the service, for each service with addresses in its table.
  std::map<std::string, PlainText, std::less<>> plain_text;
  bool is_first_process = false;  // of an image; not the file's to say
  uint64_t text_bytes = 0;        // of the file
  // The settings of parts of the program, by the part's name (configuration_part.h). Only the part
  // knows their type; copies share them.
  std::map<std::string, std::shared_ptr<void>, std::less<>> parts;

  // Makes the settings of the part `name`, with their defaults.
  template <typename Settings>
  Settings& make_part(const char* name) {
    auto made = std::make_shared<Settings>();
    parts[name] = made;
    return *made;
  }
  // These settings; without the part, their defaults. They live as long as this and its copies.
  template <typename Settings>
  const Settings& part(std::string_view name) const {
    static const Settings kDefaults = {};
    const auto found = parts.find(name);
    return found == parts.end() ? kDefaults : *static_cast<const Settings*>(found->second.get());
  }
};

// Describes the tables above (configuration_table.h), into `all`.
class ConfigurationTable;
void describe(ConfigurationTable& file, Configuration& all);

}  // namespace bedplate
