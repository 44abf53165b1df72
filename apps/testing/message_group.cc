#include "apps/testing/message_group.h"

#include <utility>

#include <unistd.h>

#include "platform/units.h"
#include "transport/shm/membership/group_layout.h"

namespace bedplate::testing {

MessageGroup::~MessageGroup() {
  peers_.clear();
  appliance_.reset();
  if (table_ != nullptr) table_->release_owner_life();
}

MessagePeer& MessageGroup::add(std::string name) {
  BP_ASSERT(table_ == nullptr && "add peers before the services are created");
  peers_.push_back(std::unique_ptr<MessagePeer>(new MessagePeer(std::move(name))));
  return *peers_.back();
}

Result<std::span<std::byte>> MessageGroup::take(const char* owner, uint64_t bytes) {
  auto made = pool_.create_segment(owner, align_up(bytes, 4 * kKiB), PageSize::k4KiB, 1);
  if (!made.ok()) return made.error();
  return made.value()->memory().subspan(0, bytes);
}

Result<void> MessageGroup::join(uint32_t member, const std::string& name, ShmProvider& shm,
                                const Dispatcher& dispatcher) {
  segment_.reset_member(member);
  table_->begin_join(member, static_cast<uint32_t>(getpid()), MemberName(name),
                     SegmentRights::all());
  table_->set_state(member, MemberState::kAlive);
  ShmProviderOptions options;
  options.segment = segment_;
  options.members = table_;
  options.member = member;
  options.pool = &pool_;
  return shm.create(options, dispatcher);
}

Result<void> MessageGroup::create(ShardMessenger& messenger, const std::string& appliance,
                                  const MessageNames& names) {
  BP_ASSERT(table_ == nullptr && !peers_.empty());
  names_ = &names;
  GroupShape shape;
  shape.member_count = static_cast<uint32_t>(1 + peers_.size());
  shape.box_count = default_box_count(shape.member_count);
  BP_TRY_ASSIGN(const PoolId id, make_pool_id());
  BP_TRY_ASSIGN(const auto table_memory,
                take("members:peers", MembersTable::bytes_for(shape.member_count)));
  BP_TRY_ASSIGN(const auto memory, take("fifo:peers", GroupLayout(shape).bytes()));
  MembersTable* const table = MembersTable::create(table_memory, shape.member_count, id);
  segment_ = GroupSegment::create(memory, shape, id, BellFence::kBoth);
  BP_TRY(table->hold_owner_life());
  table_ = table;
  appliance_ = std::make_unique<ShmProvider>();
  BP_TRY(join(0, appliance, *appliance_, messenger.messenger().dispatcher()));
  messenger.add_group(*appliance_);
  return {};
}

Result<void> MessageGroup::join_all() {
  for (uint32_t i = 0; i < peers_.size(); ++i) BP_TRY(peers_[i]->join(*this, i + 1));
  return {};
}

// A dead peer is quiet once the appliance has noticed its death: then loans to it end.
uint32_t MessageGroup::bury_the_dead() noexcept {
  uint32_t count = 0;
  for (uint32_t member = 1; member <= peers_.size(); ++member) {
    if (table_->state(member) != MemberState::kDead) continue;
    const uint64_t noticed = segment_.wrapper(0).acknowledged_epoch.load(std::memory_order_acquire);
    if (noticed < table_->changed_epoch(member)) continue;
    table_->set_state(member, MemberState::kQuiet);
    ++count;
  }
  return count;
}

uint32_t MessageGroup::poll() noexcept {
  if (table_ == nullptr) return 0;
  uint32_t count = 0;
  for (const auto& peer : peers_) count += peer->poll();
  return count + bury_the_dead();
}

}  // namespace bedplate::testing
