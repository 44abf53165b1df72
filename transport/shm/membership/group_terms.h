// The terms of a group, which the owner of a pool tells each process that joins: the bytes that
// pinned_pool/join/join_protocol.h hands over as the group's layout, without looking into them.
//
// The owner's choices only: nothing that the process finds out by itself, or may choose.
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
  // `order`: as configured, each kind at most once. A group whose members do not trust one another
  // has no single copy, even if it is configured.
  GroupTerms(const GroupShape& its_shape, std::span<const SingleCopyKind> order) noexcept;

  // The order in which the kinds of single copy are to be tried; empty: off.
  std::span<const SingleCopyKind> single_copy() const noexcept {
    return {single_copy_kinds, single_copy_count};
  }
  // Keeps the kinds of the order that `allowed` has, too.
  void restrict_single_copy(std::span<const SingleCopyKind> allowed) noexcept;
};
// Between processes.
static_assert(std::is_trivially_copyable_v<GroupTerms>);
static_assert(offsetof(GroupTerms, shape) == 0 && sizeof(GroupShape) == 52);
static_assert(offsetof(GroupTerms, single_copy_count) == 52);
static_assert(offsetof(GroupTerms, single_copy_kinds) == 56);
static_assert(sizeof(GroupTerms) == 68 && sizeof(GroupTerms) <= join::kLayoutBytesMax);

// The terms in `layout`, which came from the owner, of the group `name`. GroupSegment::attach
// checks the numbers of the shape. Errors: another length, or an order of single copy that makes no
// sense.
Result<GroupTerms> read_group_terms(std::span<const std::byte> layout, const char* name) noexcept;

}  // namespace bedplate
