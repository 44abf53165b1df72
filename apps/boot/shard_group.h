// The shards of one appliance as members of a group. Their messages travel as between processes, by
// a lane for each pair, and a doorbell wakes a sleeping shard. Each shard that exchanges messages
// is a member; the members never change.
//
//     shards   the segment: its members table, `members:shards`, and the lanes, `lanes:shards`
//
// Invariants, checked by create(): 1. A member's number is its shard's. 2. There are two or more.
// 3. No other group uses the segment.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "apps/boot/shard_messenger.h"
#include "apps/configuration/configuration.h"
#include "apps/counters/counters_file.h"
#include "pinned_pool/join/membership.h"
#include "pinned_pool/pinned_pool.h"
#include "pinned_pool/plan.h"

namespace bedplate {

// The segment of the group. The plan has it if services exchange messages on two shards or more.
SegmentRequest plan_shard_group(const Configuration& configuration);

class ShardGroup {
 public:
  ShardGroup() noexcept = default;
  ShardGroup(const ShardGroup&) = delete;
  ShardGroup& operator=(const ShardGroup&) = delete;
  // Requires: the thread that called create(); the loops do not run.
  ~ShardGroup();

  // Makes the group and adds its members to `messengers`, one for each shard (nullptr: the shard
  // exchanges no messages). `doorbells`: of the shards' loops. Requires: `pool` is reserved as
  // planned and not sealed; the loops do not run; the calling thread lives as long as the loops;
  // `counters` was made for the plan; two messengers or more. Errors: OwnerLife::hold's; no random
  // number for the group's id.
  Result<void> create(const Configuration& configuration, PinnedPool& pool,
                      std::vector<Doorbell*> doorbells,
                      std::span<const std::unique_ptr<ShardMessenger>> messengers,
                      CountersFile& counters);

 private:
  MembersTable* table_ = nullptr;  // whose owner is this thread
  std::vector<Doorbell*> doorbells_;
  std::vector<std::unique_ptr<ShmProvider>> members_;
};

}  // namespace bedplate
