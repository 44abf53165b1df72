#include "apps/boot/shard_group.h"

#include <utility>

#include <unistd.h>

#include "apps/boot/runtime_counters.h"
#include "platform/numa.h"

namespace bedplate {
namespace {

constexpr const char* kSegment = "shards";
constexpr const char* kTable = "members:shards";
constexpr const char* kLanes = "lanes:shards";

GroupShape shape_of(const Configuration& configuration) noexcept {
  GroupShape shape;
  shape.kind = GroupKind::kMesh;
  shape.member_count = static_cast<uint32_t>(configuration.shards.size());
  shape.loan_count = 64;
  return shape;
}

}  // namespace

SegmentRequest plan_shard_group(const Configuration& configuration) {
  const GroupShape shape = shape_of(configuration);
  return {
      kSegment,
      {{kTable, MembersTable::bytes_for(shape.member_count)}, {kLanes, GroupLayout(shape).bytes()}},
      {configuration.pool.pages, node_of_cpu(configuration.shards[0].cpu)}};
}

ShardGroup::~ShardGroup() {
  members_.clear();
  if (table_ != nullptr) table_->release_owner_life();
}

Result<void> ShardGroup::create(const Configuration& configuration, PinnedPool& pool,
                                std::vector<Doorbell*> doorbells,
                                std::span<const std::unique_ptr<ShardMessenger>> messengers,
                                CountersFile& counters) {
  BP_ASSERT(members_.empty() && !pool.is_sealed() && messengers.size() == doorbells.size());
  const GroupShape shape = shape_of(configuration);
  BP_ASSERT(shape.member_count == doorbells.size());
  doorbells_ = std::move(doorbells);
  Segment& segment = *pool.find_segment(kSegment);
  BP_ASSERT(segment.carved_bytes == 0);
  BP_TRY_ASSIGN(const PoolId id, make_pool_id());
  const auto table_memory =
      pool.carve(segment, kTable, MembersTable::bytes_for(shape.member_count));
  const auto lanes = pool.carve(segment, kLanes, GroupLayout(shape).bytes());
  MembersTable& table = *MembersTable::create(table_memory, shape.member_count, id);
  const BellFence fence = join_bell_fence().ok() ? BellFence::kSleeper : BellFence::kBoth;
  const GroupSegment group = GroupSegment::create(lanes, shape, id, fence);
  BP_TRY(table.hold_owner_life());
  table_ = &table;
  const auto pid = static_cast<uint32_t>(getpid());
  for (uint32_t i = 0; i < shape.member_count; ++i) {
    if (messengers[i] == nullptr) continue;
    BP_ASSERT(table.state(i) == MemberState::kFree);
    group.reset_member(i);
    table.begin_join(i, pid, MemberName(configuration.shards[i].name), SegmentRights::all());
    table.set_state(i, MemberState::kAlive);
  }
  for (uint32_t i = 0; i < shape.member_count; ++i) {
    if (messengers[i] == nullptr) continue;
    ShmProviderOptions options;
    options.segment = group;
    options.members = &table;
    options.member = i;
    options.pool = &pool;
    options.name = "shards";
    options.doorbells = doorbells_;
    options.counters =
        &counters.runtime<ShardGroupCounters>("shard_group", configuration.shards[i].name).shm;
    members_.push_back(std::make_unique<ShmProvider>());
    BP_TRY(members_.back()->create(options, messengers[i]->messenger().dispatcher()));
    messengers[i]->add_group(*members_.back());
  }
  BP_ASSERT(members_.size() > 1);
  return {};
}

}  // namespace bedplate
