#include "transport/dpdk/net/memberships_datapath.h"

#include <algorithm>
#include <cerrno>

#include "platform/assert.h"

namespace bedplate {

LinkGroup* Memberships::find_group(const IpAddress& address) noexcept {
  for (uint32_t i = 0; i < count_max_; ++i) {
    if (is_same(groups_[i].address, address)) return &groups_[i];
  }
  return nullptr;
}

uint32_t* Memberships::find_link(Holder& holder, const IpAddress& group,
                                 const IpAddress& source) noexcept {
  for (uint32_t* link = &holder; *link != kNone; link = &memberships_[*link].next) {
    const Membership& one = memberships_[*link];
    BP_DCHECK(one.group < count_max_);
    if (is_same(one.source, source) && is_same(groups_[one.group].address, group)) return link;
  }
  return nullptr;
}

LinkGroup* Memberships::join(Holder& holder, const IpAddress& group, const IpAddress& source,
                             int& error_number) noexcept {
  BP_KEEPS_VALID(*this);
  const bool has_source = source.family != 0;
  error_number = 0;
  if (group.family == 0 || !is_multicast(group) ||
      (has_source && (source.family != group.family || is_multicast(source)))) {
    error_number = EINVAL;
    return nullptr;
  }
  if (find_link(holder, group, source) != nullptr) {
    error_number = EADDRINUSE;
    return nullptr;
  }
  LinkGroup* its = find_group(group);
  IpAddress others[kSourceCountMax];
  const bool is_full = its != nullptr && has_source && sources(*its, others) == kSourceCountMax;
  if (its == nullptr) {
    its = std::find_if(&groups_[0], &groups_[0] + count_max_,
                       [](const LinkGroup& one) { return !one.is_used(); });
  }
  if (first_free_ == kNone || is_full || its == &groups_[0] + count_max_) {
    error_number = ENOBUFS;
    return nullptr;
  }
  its->address = group;
  const uint32_t index = first_free_;
  BP_ASSERT(index < count_max_);
  Membership& made = memberships_[index];
  BP_ASSERT(made.group == kNone);
  first_free_ = made.next;
  made = {source, static_cast<uint32_t>(its - &groups_[0]), holder};
  holder = index;
  ++its->member_count;
  its->any_count += !has_source;
  return its;
}

LinkGroup* Memberships::remove(uint32_t& link) noexcept {
  BP_DCHECK_SLOW(is_valid());
  const uint32_t index = link;
  BP_ASSERT(index < count_max_);
  Membership& one = memberships_[index];
  BP_ASSERT(one.group < count_max_);
  LinkGroup& group = groups_[one.group];
  BP_ASSERT(group.member_count > 0);
  BP_ASSERT(one.source.family != 0 || group.any_count > 0);
  --group.member_count;
  group.any_count -= one.source.family == 0;
  link = one.next;
  one = {{}, kNone, first_free_};
  first_free_ = index;
  return &group;
}

LinkGroup* Memberships::leave(Holder& holder, const IpAddress& group, const IpAddress& source,
                              int& error_number) noexcept {
  uint32_t* link = find_link(holder, group, source);
  error_number = link != nullptr ? 0 : EADDRNOTAVAIL;
  return link != nullptr ? remove(*link) : nullptr;
}

LinkGroup* Memberships::leave_any(Holder& holder) noexcept {
  return holder != kNone ? remove(holder) : nullptr;
}

bool Memberships::accepts(const Holder& holder, const IpAddress& group,
                          const IpAddress& source) const noexcept {
  for (uint32_t at = holder; at != kNone; at = memberships_[at].next) {
    const Membership& one = memberships_[at];
    BP_DCHECK(one.group < count_max_);
    if (is_same(groups_[one.group].address, group) &&
        (one.source.family == 0 || is_same(one.source, source))) {
      return true;
    }
  }
  return false;
}

bool Memberships::has(const Holder& holder, const IpAddress& group) const noexcept {
  for (uint32_t at = holder; at != kNone; at = memberships_[at].next) {
    BP_DCHECK(memberships_[at].group < count_max_);
    if (is_same(groups_[memberships_[at].group].address, group)) return true;
  }
  return false;
}

void Memberships::forget_if_left(LinkGroup& group) noexcept {
  BP_DCHECK(&group >= &groups_[0] && &group < &groups_[0] + count_max_);
  if (!group.is_joined()) group = {};
}

uint32_t Memberships::sources(const LinkGroup& group,
                              IpAddress (&sources)[kSourceCountMax]) const noexcept {
  const auto index = static_cast<uint32_t>(&group - &groups_[0]);
  BP_ASSERT(index < count_max_);
  uint32_t count = 0;
  for (uint32_t i = 0; i < count_max_; ++i) {
    const Membership& one = memberships_[i];
    if (one.group != index || one.source.family == 0) continue;
    const bool is_there = std::any_of(sources, sources + count, [&](const IpAddress& other) {
      return is_same(other, one.source);
    });
    if (is_there) continue;
    BP_ASSERT(count < kSourceCountMax);  // join() refuses more
    sources[count++] = one.source;
  }
  return count;
}

}  // namespace bedplate
