// The plan of an appliance: what a configuration takes, to the byte, before anything is taken.
#pragma once

#include "apps/blockd/block_server.h"
#include "apps/boot/configuration.h"
#include "apps/boot/messages_plan.h"
#include "apps/boot/peers_plan.h"
#include "pinned_pool/plan.h"

namespace bedplate {

struct StackPlan {
  uint64_t count = 0;  // one for each shard, those of messaging, and that of peers
  uint64_t bytes_each = 0;
  uint64_t total_bytes() const noexcept { return count * bytes_each; }
};

struct AppliancePlan {
  PoolPlan pool;
  StackPlan stacks;  // private locked memory beside the pool
  std::vector<GroupPlan> groups;  // what the segments fifo: and exchange: hold
  std::vector<VerbsContextPlan> verbs;  // what is registered with the device of [verbs]
};

// Where there are groups: the control thread, the one that closes for it, and the one that waits on
// the bells.
inline constexpr uint64_t kMessagingThreadCount = 3;

// With [verbs]: who connects peers.
inline constexpr uint64_t kPeersThreadCount = 1;

// For whom blockd allocates from the heap.
inline constexpr const char* kBlockdHeapOwner = "heap:blockd";

// Errors (kConfiguration): the pool is too small; the message names the owner and by how much. A
// limit is nobody's; more segments than a pool can have; what plan_messages and check_grants say.
Result<AppliancePlan> plan_appliance(const Configuration& configuration);

// The options of blockd as the configuration states them; where it leaves a node open, that of the
// shard which uses the memory.
BlockServerOptions block_server_options(const Configuration& configuration);

}  // namespace bedplate
