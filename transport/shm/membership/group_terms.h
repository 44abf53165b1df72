// The terms of a group, which the pool's owner sends to each process that joins.
// pinned_pool/join/join_protocol.h carries them as the opaque bytes of the group's layout.
//
// The terms are the owner's choices only: the process finds out or chooses everything else itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "pinned_pool/join/join_protocol.h"
#include "platform/result.h"
#include "transport/shm/membership/group_layout.h"
#include "transport/single_copy/single_copy.h"

namespace bedplate {

struct GroupTerms {
  GroupShape shape;
  uint32_t single_copy_count = 0;
  SingleCopyKind single_copy_kinds[kSingleCopyKindCount] = {};

  GroupTerms() noexcept = default;
  // `order`: as configured, each kind at most once. A group without trust has no single copy, even
  // if it is configured.
  GroupTerms(const GroupShape& its_shape, std::span<const SingleCopyKind> order) noexcept;

  // The order in which to try the kinds of single copy; empty: off.
  std::span<const SingleCopyKind> single_copy() const noexcept {
    return {single_copy_kinds, single_copy_count};
  }
  // Removes from the order each kind that `allowed` lacks.
  void restrict_single_copy(std::span<const SingleCopyKind> allowed) noexcept;
};
// Processes exchange it as bytes.
static_assert(std::is_trivially_copyable_v<GroupTerms>);
static_assert(offsetof(GroupTerms, shape) == 0 && sizeof(GroupShape) == 52);
static_assert(offsetof(GroupTerms, single_copy_count) == 52);
static_assert(offsetof(GroupTerms, single_copy_kinds) == 56);
static_assert(sizeof(GroupTerms) == 68 && sizeof(GroupTerms) <= join::kLayoutBytesMax);

// Reads the terms of the group `name` from `layout`, which came from the owner.
// GroupSegment::attach checks the values of the shape. Errors: a wrong length, or an invalid order
// of single copy.
Result<GroupTerms> read_group_terms(std::span<const std::byte> layout, const char* name) noexcept;

}  // namespace bedplate
