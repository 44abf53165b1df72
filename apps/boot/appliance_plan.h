// The plan of an appliance: all that a configuration takes, to the byte, before anything is taken.
#pragma once

#include "apps/boot/messages_plan.h"
#include "apps/boot/peers_needs.h"
#include "apps/configuration/configuration.h"
#include "apps/services/service_plan.h"
#include "pinned_pool/plan.h"
#include "transport/messages/message_names.h"

namespace bedplate {

// Heap memory that is kept for one owner ("heap:control") is the carve "kept:heap:control".
inline constexpr std::string_view kKeptHeap = "kept";

struct StackPlan {
  uint64_t count = 0;  // one for each shard, those of messaging, of peers, of services
  uint64_t bytes_each = 0;
  uint64_t total_bytes() const noexcept { return count * bytes_each; }
};

// Invariants, which is_valid() looks at: 1. The pool's plan is one, and its heap is carved to the
// byte. 2. Services are the configuration's, in its order, each with its needs on every shard.
// 3. Every segment that they and the groups name is the pool's, and large enough. 4. There is a
// stack for each shard. 5. No two sets of counters have one owner, name and instance; spare ones
// have none yet.
struct AppliancePlan {
  PoolPlan pool;
  StackPlan stacks;                     // private locked memory beside the pool
  std::vector<GroupPlan> groups;        // the contents of the segments fifo: and exchange:
  PeersNeeds peers;                     // of [verbs]
  std::vector<VerbsContextPlan> verbs;  // all registrations with the device of [verbs]
  std::vector<ServiceNeeds> services;   // of each of the configuration's, in its order

  MessageNames message_names;    // of all services
  bool has_shard_group = false;  // services exchange messages on two shards or more
  std::vector<CounterSet> runtime_counters;
  TraceShape traces;  // sources: the services that trace, in their order

  bool is_valid(const Configuration& configuration) const noexcept;

  // The needs of all services together. Requires: there is such a shard.
  ShardNeeds needs_on(uint32_t shard) const noexcept;
  // " (NAME, ...)" of the services that have sockets on `shard`, or nothing.
  std::string socket_users(uint32_t shard) const;
  // The runtime's first, then those of services.
  std::vector<CounterSet> counters() const;
  uint64_t capabilities() const noexcept;
  std::vector<std::string> vfio_devices() const;
};

// Threads if there are groups: the control thread, the one that closes for it, and the one that
// waits on the bells.
inline constexpr uint64_t kMessagingThreadCount = 3;

// Errors (kConfiguration): the pool is too small (the message names the owner and by how much); a
// [[limit]] names no owner; more segments than a pool can have; two of one name; those of
// plan_messages, check_grants and services.
Result<AppliancePlan> plan_appliance(const Configuration& configuration);

}  // namespace bedplate
