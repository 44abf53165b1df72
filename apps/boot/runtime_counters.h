// The counters of the runtime's own parts, described as services describe theirs (counter_table.h).
//
// The parts count into structs of their own, beside their code; this file names each counter, and
// says which sets an appliance has. The owner of these sets is empty. Names, kinds and units are an
// interface: docs/counters.md is made from them.
#pragma once

#include <vector>

#include "alloc/heap_owner.h"
#include "alloc/heap_walk.h"
#include "apps/boot/peers_needs.h"
#include "apps/configuration/configuration.h"
#include "apps/services/service_plan.h"
#include "pinned_pool/join/membership.h"
#include "pinned_pool/plan.h"
#include "platform/counter_table.h"
#include "transport/loop/event_loop.h"
#include "transport/shm/endpoint/shm_provider.h"
#include "transport/sockets/stream_sockets.h"
#include "transport/verbs/channel/verbs_counters.h"

namespace bedplate {

struct PoolCounters {
  Counter total_bytes;
  Counter is_sealed;
  Counter is_enforced_by_kernel;
  Counter registrations;
  Counter registrations_after_seal;
  Counter allocations_refused;
  Counter allocations_checked;  // debug builds: pointers seen to lie in the pool
  Counter bad_pointers_refused;
  Counter support_level;  // the bits of SupportLevel
};

// A way to take memory from the pool (pinned_pool/no_way_back.h).
struct WayCounters {
  Counter state;  // WayState
};

// A segment, as the audit compares it with the kernel's maps: PoolMapSegment.
struct SegmentCounters {
  Counter bytes;
  Counter page_bytes;
  Counter node;
  Counter address;
  Counter device;
  Counter inode;
  Counter is_locked;
  Counter is_writable;
  Counter has_write_seal;
};

struct OwnerCounters {
  Counter bytes;
  Counter used_bytes;  // kNoValue for another process's heap: only that process knows
};

struct HeapCounters {
  Counter bytes;
  Counter used_peak_bytes;
  Counter free_bytes;
  Counter largest_free_bytes;
  SharedText largest_owner;  // that has the most of it
};

struct HeapOwnerCounters {
  Counter used_bytes;
  Counter used_peak_bytes;
  Counter limit_bytes;  // kNoValue: none
  Counter refused;
};
static_assert(kNoLimit == kNoValue);

// A size class of the heap (alloc/heap_walk.h).
struct HeapClassCounters {
  Counter used_bytes;
  Counter free_bytes;
};

// Written by the shard, but for the last two, which are the main thread's (core_watch.h).
struct alignas(kCacheLineBytes) ShardCounters {
  EventLoopCounters loop;
  SocketCounters sockets;
  alignas(kCacheLineBytes) Counter core_moves;
  Counter is_off_core;
};

// A group, and what the appliance's own member of it has counted.
inline constexpr uint32_t kMemberStateCount = 5;
static_assert(static_cast<uint32_t>(MemberState::kQuiet) == kMemberStateCount - 1);
struct alignas(kCacheLineBytes) GroupCounters {
  Counter members[kMemberStateCount];        // how many are in each MemberState
  alignas(kCacheLineBytes) ShmCounters shm;  // its shard writes
};

// A shard that exchanges messages with others of the process.
struct alignas(kCacheLineBytes) ShardGroupCounters {
  ShmCounters shm;
};

struct alignas(kCacheLineBytes) PeersCounters {
  Counter handshakes_refused;
  Counter async_events;
  alignas(kCacheLineBytes) VerbsCounters verbs;  // its shard writes
};

struct PeerCounters {
  Counter state;  // PeerState
};

// The processes of one [[process]]; written by the thread of the join server.
struct ProcessCounters {
  Counter state;   // ProcessState, of the process that was heard of last
  Counter pid;     // of that one
  Counter joined;  // how often
  Counter died;
  Counter is_down;
  Counter dead_pid;  // of the last that died
};
enum class ProcessState : uint8_t { kAwaited, kThere, kLeft, kDied };
inline constexpr char kProcessStates[] = "awaited|there|left|died";

struct SignalCounters {
  Counter ignored;
};

struct VfioCounters {
  Counter groups;
  Counter mappings_left;
};

void describe(CounterTable& table, PoolCounters& counters);
void describe(CounterTable& table, ProcessCounters& counters);
void describe(CounterTable& table, WayCounters& counters);
void describe(CounterTable& table, SegmentCounters& counters);
void describe(CounterTable& table, OwnerCounters& counters);
void describe(CounterTable& table, HeapCounters& counters);
void describe(CounterTable& table, HeapOwnerCounters& counters);
void describe(CounterTable& table, HeapClassCounters& counters);
void describe(CounterTable& table, ShardCounters& counters);
// The sources that a shard polls: each service's together, and each part of the runtime's.
void describe(CounterTable& table, SourceCounters& counters);
void describe(CounterTable& table, GroupCounters& counters);
void describe(CounterTable& table, ShardGroupCounters& counters);
void describe(CounterTable& table, PeersCounters& counters);
void describe(CounterTable& table, PeerCounters& counters);
void describe(CounterTable& table, SignalCounters& counters);
void describe(CounterTable& table, VfioCounters& counters);

// The name of "SHARD.PART" among the sets of sources; parts of the runtime's own are "sockets",
// "messages" and "peers".
std::string source_instance(const std::string& shard, const std::string& part);

// The parts of an appliance's plan that have counters.
struct RuntimeParts {
  const Configuration& configuration;
  const PoolPlan& pool;
  const std::vector<ServiceNeeds>& services;
  const std::vector<std::string>& groups;
  const PeersNeeds& peers;
  bool has_shard_group = false;
};
// The sets of the runtime's counters, those of one name one after the other.
std::vector<CounterSet> plan_runtime_counters(const RuntimeParts& parts);

// One set of each that there can be, for the reference.
std::vector<CounterSet> all_runtime_counters();

}  // namespace bedplate
