// The sets of counters of the runtime in an appliance; their owner is empty.
//
// The parts of the runtime describe their counters beside their code, as services do
// (counter_table.h); this file has structs that combine several of them. Names, kinds and units are
// an interface: docs/counters.md is made from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/boot/peers_needs.h"
#include "apps/configuration/configuration.h"
#include "apps/services/service_plan.h"
#include "pinned_pool/join/membership.h"
#include "pinned_pool/plan.h"
#include "platform/counter_table.h"
#include "transport/loop/loop_counters.h"
#include "transport/shm/endpoint/shm_counters.h"
#include "transport/sockets/socket_counters.h"
#include "transport/verbs/channel/verbs_counters.h"

namespace bedplate {

// The shard writes all but the last two counters. The main thread writes those (core_watch.h).
struct alignas(kCacheLineBytes) ShardCounters {
  EventLoopCounters loop;
  SocketCounters sockets;
  alignas(kCacheLineBytes) Counter core_moves;
  Counter is_off_core;
};

inline constexpr uint32_t kMemberStateCount = 5;
static_assert(static_cast<uint32_t>(MemberState::kQuiet) == kMemberStateCount - 1);
// A group, and the appliance's own member of it.
struct alignas(kCacheLineBytes) GroupCounters {
  Counter members[kMemberStateCount];        // how many are in each MemberState
  alignas(kCacheLineBytes) ShmCounters shm;  // its shard writes
};

// A shard that exchanges messages with other shards of the process.
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
  Counter state;   // ProcessState of the process that the last event was about
  Counter pid;     // of the same process
  Counter joined;  // joins
  Counter died;
  Counter is_down;   // more have died than have joined since
  Counter dead_pid;  // the last one that died
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

void describe(CounterTable& table, ProcessCounters& counters);
void describe(CounterTable& table, ShardCounters& counters);
void describe(CounterTable& table, GroupCounters& counters);
void describe(CounterTable& table, ShardGroupCounters& counters);
void describe(CounterTable& table, PeersCounters& counters);
void describe(CounterTable& table, PeerCounters& counters);
void describe(CounterTable& table, SignalCounters& counters);
void describe(CounterTable& table, VfioCounters& counters);

// The instance "SHARD.PART" of the sets of sources; the runtime's own parts are "sockets",
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
// The sets of the runtime's counters, sets of one name in a row.
std::vector<CounterSet> plan_runtime_counters(const RuntimeParts& parts);

// One set of each kind, for the reference.
std::vector<CounterSet> all_runtime_counters();

}  // namespace bedplate
