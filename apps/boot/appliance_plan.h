// The plan of an appliance: all that a configuration takes, to the byte, before anything is taken.
#pragma once

#include "apps/boot/messages_plan.h"
#include "apps/boot/peers_needs.h"
#include "apps/configuration/configuration.h"
#include "apps/services/service_plan.h"
#include "pinned_pool/plan.h"
#include "transport/loop/shard_plan.h"
#include "transport/messages/message_names.h"

namespace bedplate {

// The carve "kept:heap:control" is heap memory that is kept for the owner "heap:control".
inline constexpr std::string_view kKeptHeap = "kept";

struct StackPlan {
  uint64_t count = 0;  // of shards, their file threads, messaging, peers and services
  uint64_t bytes_each = 0;
  uint64_t total_bytes() const noexcept { return count * bytes_each; }
};

// Invariants, checked by is_valid(): 1. The pool's plan is valid, it fits into [pool] bytes, and
// its heap is carved to the byte. 2. The services are those of the configuration, in its order,
// each with its needs on every shard. 3. The pool has every segment that services and groups name,
// and each is large enough. 4. Each shard has a stack. 5. No two sets of counters have the same
// owner, name and instance; spare sets have no name yet.
struct AppliancePlan {
  PoolPlan pool;
  StackPlan stacks;                     // private locked memory beside the pool
  std::vector<GroupPlan> groups;        // the contents of the segments fifo: and exchange:
  PeersNeeds peers;                     // of [verbs]
  std::vector<VerbsContextPlan> verbs;  // all registrations with the device of [verbs]
  std::vector<ServiceNeeds> services;   // needs of each service of the configuration, in its order

  MessageNames message_names;    // of all services
  bool has_shard_group = false;  // services exchange messages on two shards or more
  std::vector<CounterSet> runtime_counters;
  TraceShape traces;  // sources: the services that trace, in their order

  bool is_valid(const Configuration& configuration) const noexcept;

  // The needs of all services together. Requires: `shard` exists.
  ShardNeeds needs_on(uint32_t shard) const noexcept;
  // The same for each service by itself, for the shard called `name`. It finds the heap owner of
  // each service: from prepare() on.
  ShardPlan shard_plan(uint32_t shard, const std::string& name) const;
  // " (NAME, ...)" of the services that have sockets on `shard`; empty if none has.
  std::string socket_users(uint32_t shard) const;
  // The runtime's sets first, then those of the services.
  std::vector<CounterSet> counters() const;
  // The capabilities that services keep after root is given up: bit N is capability N.
  uint64_t capabilities() const noexcept;
  // The PCI addresses of all devices that services drive by VFIO.
  std::vector<std::string> vfio_devices() const;
};

// Threads of messaging, if there are groups: the control thread, the thread that closes connections
// for it, and the thread that waits on the bells.
inline constexpr uint64_t kMessagingThreadCount = 3;

// Errors (kConfiguration): the pool is too small (the message names the owner and by how much); a
// [[limit]] names no owner; more segments than a pool can have; two segments of one name; two keys
// that take over activated sockets; errors of MessageNames::add, plan_messages, check_grants,
// keep_from_outsiders and services.
Result<AppliancePlan> plan_appliance(const Configuration& configuration);

}  // namespace bedplate
