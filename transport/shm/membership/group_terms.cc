#include "transport/shm/membership/group_terms.h"

#include <algorithm>
#include <cstring>

#include "transport/shm/membership/group_traits.h"

namespace bedplate {
namespace {

bool has(std::span<const SingleCopyKind> kinds, SingleCopyKind kind) noexcept {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

bool makes_sense(const GroupTerms& terms) noexcept {
  if (terms.single_copy_count > kSingleCopyKindCount) return false;
  if (!group_traits(terms.shape.kind).has_trust && terms.single_copy_count != 0) return false;
  const std::span<const SingleCopyKind> order = terms.single_copy();
  for (size_t i = 0; i < order.size(); ++i) {
    if (!has(kSingleCopyKinds, order[i]) || has(order.first(i), order[i])) return false;
  }
  return true;
}

}  // namespace

GroupTerms::GroupTerms(const GroupShape& its_shape, std::span<const SingleCopyKind> order) noexcept
    : shape(its_shape) {
  BP_ASSERT(order.size() <= kSingleCopyKindCount);
  if (!group_traits(shape.kind).has_trust) return;
  for (const SingleCopyKind kind : order) single_copy_kinds[single_copy_count++] = kind;
  BP_ASSERT(makes_sense(*this));
}

void GroupTerms::restrict_single_copy(std::span<const SingleCopyKind> allowed) noexcept {
  const auto end = std::remove_if(single_copy_kinds, single_copy_kinds + single_copy_count,
                                  [allowed](SingleCopyKind kind) { return !has(allowed, kind); });
  single_copy_count = static_cast<uint32_t>(end - single_copy_kinds);
}

Result<GroupTerms> read_group_terms(std::span<const std::byte> layout, const char* name) noexcept {
  Error error = error_while("attaching to group %s", name)
                    .set_cure("run both programs from the same release of Bedplate");
  GroupTerms terms;
  if (layout.size() != sizeof terms) {
    return error.set_answer("its layout has %zu bytes, not %zu", layout.size(), sizeof terms);
  }
  std::memcpy(static_cast<void*>(&terms), layout.data(), sizeof terms);
  if (!makes_sense(terms)) return error.set_answer("its order of single copy is not valid");
  return terms;
}

}  // namespace bedplate
