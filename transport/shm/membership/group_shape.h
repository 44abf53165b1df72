// The shape of a group: the numbers of its [[group]], and those of its queues that follow from
// them.
#pragma once

#include <cstdint>

#include "platform/cache_line.h"
#include "platform/result.h"

namespace bedplate {

// The kinds of groups: which members may write to which, and by which queues.
//   kLazy      each member has one FIFO that all others write; fast boxes for pairs that talk often
//   kMesh      each ordered pair has a lane of its own
//   kExchange  two members that do not trust one another, a box in each direction
enum class GroupKind : uint32_t { kLazy, kMesh, kExchange };

// "lazy", "mesh", "exchange": static.
const char* to_text(GroupKind kind) noexcept;

// The description of a group. Plain data: joiners get a copy, and the segment's header has one.
struct GroupShape {
  GroupKind kind = GroupKind::kLazy;
  uint32_t member_count = 2;       // how many there can be, the owner's included
  uint32_t entry_count = 128;      // lazy: of each inbound FIFO; mesh: of each lane; a power of two
  uint32_t eager_bytes = 4096;     // the longest message that is copied
  uint32_t eager_count = 4;        // how many of these each member's eager region holds
  uint32_t box_bytes = 4096;       // of each fast box, a power of two
  uint32_t box_count = 0;          // lazy: of the group
  uint32_t box_count_max = 32;     // of these, a receiver gives away at most so many
  uint32_t send_threshold = 16;    // sends until a pair gets a box
  uint32_t loan_count = 128;       // that one member can have outstanding
  uint32_t is_multi_threaded = 0;  // mesh: heads and tails have lines of their own
  uint32_t line_bytes = kCacheLineBytes;
  uint32_t publish_timeout_ms = 50;  // lazy: a claim that is not published by then is passed over

  bool operator==(const GroupShape&) const noexcept = default;
};

inline constexpr uint32_t kInboundBoxCountMax = 64;  // boxes that one receiver polls
inline constexpr uint32_t kMemberCountMax = 2047;    // a slot has 11 bits for its sender
inline constexpr uint32_t kMessageBytesMax = 8191;   // and 13 for its bytes
inline constexpr uint32_t kEagerCountMax = 32;

// The number of boxes if the group's configuration has none: enough for all pairs of a small group.
constexpr uint32_t default_box_count(uint32_t member_count) noexcept {
  const uint64_t pairs = uint64_t{member_count} * (member_count - 1);
  const uint64_t share = uint64_t{member_count} * 5;
  return static_cast<uint32_t>(pairs < share ? pairs : share);
}

// The least bytes of a member's eager region: room at once for a record with the least data and for
// a slot's bytes, so that nothing waits for room for ever.
uint64_t eager_region_bytes_min(GroupKind kind) noexcept;

// Errors (kConfiguration): the first number that is out of range, with the range; or an eager
// region that is too small.
Result<void> check_group_shape(const GroupShape& shape) noexcept;

}  // namespace bedplate
