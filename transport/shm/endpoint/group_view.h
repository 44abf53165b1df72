// A member's view of its group: its own number, and the state of the others from the table and the
// segment. All parts of a provider share one, and none of them writes to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pinned_pool/join/membership.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/assert.h"
#include "transport/shm/membership/group_segment.h"
#include "transport/shm/membership/group_traits.h"

namespace bedplate {

struct GroupViewOptions {
  GroupSegment segment;
  const MembersTable* members = nullptr;
  const PinnedPool* pool = nullptr;
  // By member number, if all members are event loops of this process; else empty.
  std::span<Doorbell* const> doorbells = {};
  uint32_t self = 0;
};

// Threads: any.
class GroupView {
 public:
  GroupView() noexcept = default;
  explicit GroupView(const GroupViewOptions& options) noexcept : all_(options) {
    BP_ASSERT(all_.self < shape().member_count);
    BP_ASSERT(all_.members->member_count() >= shape().member_count);
  }

  const GroupSegment& segment() const noexcept { return all_.segment; }
  const GroupShape& shape() const noexcept { return all_.segment.shape(); }
  GroupTraits traits() const noexcept { return group_traits(shape().kind); }
  const MembersTable& members() const noexcept { return *all_.members; }
  uint32_t member_count() const noexcept { return shape().member_count; }
  uint32_t self() const noexcept { return all_.self; }

  FutexBell bell_of(uint32_t member) const noexcept;
  bool is_peer(uint32_t member) const noexcept {
    return member < member_count() && member != all_.self;
  }
  bool is_alive(uint32_t member) const noexcept {
    return all_.members->state(member) == MemberState::kAlive;
  }
  // Whether the member has exited, left or was cut off by the owner, or nobody has its number. Its
  // process may still run and write.
  bool has_died(uint32_t member) const noexcept {
    const MemberState state = all_.members->state(member);
    return state != MemberState::kAlive && state != MemberState::kJoining;
  }
  // Whether `member`, in that generation, stores nothing into this member's part any more: it has
  // exited, has said that it writes no more, or has cut this member off.
  bool answers_no_more(uint32_t member, uint64_t generation) const noexcept;
  // The memory into which the member copies messages that do not fit into a slot; may be empty.
  std::span<std::byte> eager_region_of(uint32_t member) const noexcept {
    return all_.segment.eager_region(member);
  }
  // The segment that contains all of [memory, memory + bytes). nullptr: none does, or it is the
  // segment that only this process has mapped.
  const Segment* shared_segment(const void* memory, uint64_t bytes) const noexcept;

 private:
  GroupViewOptions all_;
};

}  // namespace bedplate
