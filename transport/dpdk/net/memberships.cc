#include <algorithm>

#include "platform/assert.h"
#include "transport/dpdk/net/memberships_datapath.h"

namespace bedplate {

Memberships::Memberships(uint32_t count_max)
    : count_max_(count_max),
      memberships_(std::make_unique<Membership[]>(count_max)),
      groups_(std::make_unique<LinkGroup[]>(count_max)) {
  BP_ASSERT(count_max > 0);
  for (uint32_t i = 0; i + 1 < count_max; ++i) memberships_[i].next = i + 1;
}

bool Memberships::is_valid() const noexcept {
  uint32_t free_count = 0;
  for (uint32_t at = first_free_; at != kNone; at = memberships_[at].next) {
    if (at >= count_max_ || memberships_[at].group != kNone || ++free_count > count_max_) {
      return false;
    }
  }
  for (uint32_t i = 0; i < count_max_; ++i) {
    const LinkGroup& group = groups_[i];
    uint32_t member_count = 0;
    uint32_t any_count = 0;
    for (uint32_t k = 0; k < count_max_; ++k) {
      if (memberships_[k].group != i) continue;
      ++member_count;
      any_count += memberships_[k].source.family == 0;
    }
    free_count += member_count;
    if (group.member_count != member_count || group.any_count != any_count) return false;
    if (member_count > 0 && !group.is_used()) return false;
    if (group.is_used() && member_count == 0 && group.reports_left == 0) return false;
  }
  return free_count == count_max_;
}

}  // namespace bedplate
