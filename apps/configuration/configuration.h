// The configuration of an appliance: one TOML file, read once at boot, parsed strictly.
//
// Strict means: an unknown key, a wrong type, a value out of range or a reference to an undefined
// name is an error with file, line and column; the parser guesses nothing and ignores nothing.
// Parsing starts nothing and touches no device: the same function serves `run`, `plan` and `check`.
// docs/configuration.md describes every key, with its range; a test compares its list with the
// parser's. The structs here hold the values of the keys. An appliance does not change them after
// it has read them, so any thread may read them; only `plan --explain` tries other values
// (apps/boot/loaded_configuration.h). Units are in the names.
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
#include "platform/product.h"
#include "platform/result.h"
#include "platform/units.h"
#include "transport/shm/membership/group_shape.h"
#include "transport/single_copy/single_copy.h"

namespace bedplate {

inline constexpr uint32_t kShardCountMax = 64;

// The memory that the file expects malloc to hand out. The file cannot choose it, because malloc
// runs before the file is read (alloc/interception_decision.h).
enum class HeapExpectation { kAny, kPool, kOrdinary };

enum class SocketBackendChoice { kIoUring, kEpoll, kIoUringOrEpoll };

struct ApplianceSettings {
  std::string name;
  std::string runtime_directory = usual_runtime_directory();
  uint32_t drain_timeout_ms = 5000;
  uint32_t trace_requests = 4096;  // the last requests of each shard; 0: no traces
  std::string user;                // replaces root once memory is taken; empty: no change
};

// Guards the sealed pool against calls that would take its memory away, beside the wrapped libc
// calls.
enum class Enforcement { kKernel, kSeccomp };

struct PoolSettings {
  uint64_t bytes = 0;
  PageWish pages = PageWish::k2MiB;
  Enforcement enforce = Enforcement::kKernel;
  uint64_t heap_min_bytes = 32 * kMiB;
  std::optional<PageWish> heap_pages = {};  // nothing: the same as `pages`
  std::optional<int> heap_node = {};        // nothing: the node of the first shard's core
};

struct AllocSettings {
  HeapExpectation expect = HeapExpectation::kAny;
};

// The limit of one owner of heap memory (alloc/heap_owner.h).
struct LimitSettings {
  std::string owner;
  uint64_t bytes = 0;
};

struct EventLoopSettings {
  SocketBackendChoice sockets = SocketBackendChoice::kIoUringOrEpoll;
  uint32_t spin_us = 50;
  uint32_t stall_ms = 100;    // 0: off
  bool shared_cores = false;  // several shards may have the same core
};

struct ShardSettings {
  std::string name;
  int cpu = 0;
};

// A trust group with its FIFOs.
struct GroupSettings {
  std::string name;
  GroupShape shape;           // its member_count includes the spare members
  uint32_t spare_count = 0;   // members that replace those of dead processes
  uint32_t member_count = 0;  // as configured, without the spare members
};

// A kind of process that may join, and the memory of each such process.
struct ProcessSettings {
  std::string name;
  std::string user;  // a name, or a number in digits
  bool trusted = true;
  uint32_t group = 0;        // trusted: index into Configuration::groups
  uint32_t max_count = 1;    // how many may be joined at once
  uint32_t spare_count = 0;  // trusted: more places, used until the place of a dead process is free
  uint32_t members = 1;      // of each process
  uint64_t heap_bytes = 0;   // of each process; 0: no heap
  std::vector<std::string> read = {};   // owners of segments
  std::vector<std::string> write = {};  // the same
  uint32_t box_bytes = 4096;            // untrusted: of the exchange group
  bool verbs = false;                   // it also registers its maps with the device of [verbs]

  uint32_t place_count() const noexcept { return max_count + (trusted ? spare_count : 0); }
};

enum class JoinFailure { kContinue, kStop };

struct MessagesSettings {
  std::string socket;  // where processes connect to join
  std::vector<SingleCopyKind> single_copy = {std::begin(kSingleCopyKinds),
                                             std::end(kSingleCopyKinds)};  // by preference
  JoinFailure on_join_failure = JoinFailure::kContinue;  // how the owner reacts to it
};

inline constexpr uint64_t kSocketPathMax = 107;  // sun_path, without its NUL

// Selects the listeners of a service that serve clients without TLS: those on loopback and Unix
// sockets, all, or none.
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
  std::vector<Service*> services;  // those with a table, in the order of the program's list
  // The key plain_text of each service with addresses in its table, by the service's name.
  std::map<std::string, PlainText, std::less<>> plain_text;
  bool is_first_process = false;  // of an image; not set by the file
  uint64_t text_bytes = 0;        // size of the file
  // The settings of parts of the program, by the part's name (configuration_part.h). Only the part
  // knows their type. Copies of this object share them.
  std::map<std::string, std::shared_ptr<void>, std::less<>> parts;

  // Makes the settings of the part `name`, with their defaults.
  template <typename Settings>
  Settings& make_part(const char* name) {
    auto made = std::make_shared<Settings>();
    parts[name] = made;
    return *made;
  }
  // The settings of the part `name`; their defaults if the part is not linked. They live as long as
  // this object and its copies.
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
