// The shape of a group: the values of its [[group]] table, with their limits.
#pragma once

#include <cstdint>

#include "platform/cache_line.h"
#include "platform/result.h"

namespace bedplate {

// The kinds of groups: which members may write to which, and through which queues.
//   kLazy      each member has one FIFO that all others write; frequent pairs get fast boxes
//   kMesh      each ordered pair has a lane of its own
//   kExchange  two members that do not trust one another, a box in each direction
enum class GroupKind : uint32_t { kLazy, kMesh, kExchange };

// "lazy", "mesh", "exchange": static.
const char* to_text(GroupKind kind) noexcept;

// The description of a group. Plain data: joiners get a copy, and the segment's header has one.
struct GroupShape {
  GroupKind kind = GroupKind::kLazy;
  uint32_t member_count = 2;       // at most, including the owner's
  uint32_t entry_count = 128;      // lazy: slots of an inbound FIFO; mesh: words of a lane; 2^n
  uint32_t eager_bytes = 4096;     // the longest message that is copied
  uint32_t eager_count = 4;        // how many such messages each member's eager region holds
  uint32_t box_bytes = 4096;       // the size of a fast box, a power of two
  uint32_t box_count = 0;          // lazy: the fast boxes of the group
  uint32_t box_count_max = 32;     // lazy: the most boxes that one receiver gives away
  uint32_t send_threshold = 16;    // lazy: sends through the FIFO until a pair gets a box
  uint32_t loan_count = 128;       // the most loans that one member has out
  uint32_t is_multi_threaded = 0;  // mesh: heads and tails get cache lines of their own
  uint32_t line_bytes = kCacheLineBytes;  // each part begins at a multiple of this: 64 or 128
  uint32_t publish_timeout_ms = 50;       // lazy: the receiver then ends an unpublished claim

  bool operator==(const GroupShape&) const noexcept = default;
};

inline constexpr uint32_t kInboundBoxCountMax = 64;  // the most boxes that one receiver polls
inline constexpr uint32_t kMemberCountMax = 2047;    // a slot has 11 bits for its sender
inline constexpr uint32_t kMessageBytesMax = 8191;   // a slot has 13 bits for its bytes
inline constexpr uint32_t kEagerCountMax = 32;

// The number of boxes if the configuration gives no number: one for each ordered pair, but at most
// five for each member.
constexpr uint32_t default_box_count(uint32_t member_count) noexcept {
  const uint64_t pairs = uint64_t{member_count} * (member_count - 1);
  const uint64_t share = uint64_t{member_count} * 5;
  return static_cast<uint32_t>(pairs < share ? pairs : share);
}

// The least size of a member's eager region; 0: members of this kind have none. A region of this
// size has space for an operation's record with the least data and, at the same time, for a slot's
// bytes. In a smaller region an operation could wait for space for ever.
uint64_t eager_region_bytes_min(GroupKind kind) noexcept;

// Errors (kConfiguration): the first value that is out of range, with the range; or an eager region
// that is too small.
Result<void> check_group_shape(const GroupShape& shape) noexcept;

}  // namespace bedplate
