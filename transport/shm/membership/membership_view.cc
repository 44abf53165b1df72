#include "transport/shm/membership/membership_view.h"

namespace bedplate {

void MembershipView::create(const GroupView& group) {
  BP_ASSERT(group_ == nullptr);
  group_ = &group;
  known_ = std::make_unique<KnownMember[]>(group.member_count());
  leaving_ = std::make_unique<uint64_t[]>(group.member_count() / 64 + 1);
  buried_ = std::make_unique<uint64_t[]>(group.member_count() / 64 + 1);
  BP_DCHECK_SLOW(is_valid());
}

void MembershipView::see(uint64_t epoch) noexcept {
  BP_ASSERT(is_complete_ && epoch != seen_epoch_);
  seen_epoch_ = epoch_to_acknowledge_ = epoch;
  BP_DCHECK_SLOW(is_valid());
}

void MembershipView::die() noexcept {
  BP_ASSERT(is_pool_gone_);
  is_dead_ = true;
  BP_DCHECK_SLOW(is_valid());
}

bool MembershipView::is_valid() const noexcept {
  const uint32_t self = group_->self();
  const uint64_t bit = uint64_t{1} << (self % 64);
  if (((leaving_[self / 64] | buried_[self / 64]) & bit) != 0) return false;
  if (epoch_to_acknowledge_ != 0 && epoch_to_acknowledge_ != seen_epoch_) return false;
  return !is_dead_ || is_pool_gone_;
}

}  // namespace bedplate
