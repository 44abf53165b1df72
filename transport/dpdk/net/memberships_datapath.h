// The groups that the sockets of one shard have joined, each with one source or with all; and for
// each group of the link, whether all sources are wanted, or which.
//
// Invariants, which is_valid() looks at: 1. Each membership is in the list of its holder or is
// free.
// 2. Each knows its group, which counts its memberships. A group without any is still to be
// reported as left.
#pragma once

#include <cstdint>
#include <memory>

#include "platform/assert.h"
#include "transport/dpdk/net/ip_words_datapath.h"

namespace bedplate {

// A group of the link. It lies in a table of Memberships.
struct LinkGroup {
  static constexpr uint64_t kNever = ~uint64_t{0};

  bool is_used() const noexcept { return address.family != 0; }
  bool is_joined() const noexcept { return member_count > 0; }
  bool wants_all() const noexcept { return any_count > 0; }

  IpAddress address;
  uint32_t member_count = 0;
  uint32_t any_count = 0;       // of them, without a source
  uint32_t reports_left = 0;    // of the last change
  uint64_t report_ns = kNever;  // when the next one is due
  uint64_t answer_ns = kNever;  // when a query for it is to be answered
};

// Threads: the shard's, but for calls before the start. Nothing is allocated after it was made.
class Memberships {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  // The most sources of one group: as many as a report has room for.
  static constexpr uint32_t kSourceCountMax = 64;

  // The memberships of one socket: the first in its list.
  using Holder = uint32_t;

  // Before the seal: it allocates. Requires: `count_max` is over 0.
  explicit Memberships(uint32_t count_max);

  // `source` of family 0: all. Returns the group, whose report is due, or nullptr with
  // `error_number` set: EINVAL (no group, or a source of another family), EADDRINUSE (already
  // joined so), ENOBUFS (there is no room); leave() sets EADDRNOTAVAIL.
  LinkGroup* join(Holder& holder, const IpAddress& group, const IpAddress& source,
                  int& error_number) noexcept;
  LinkGroup* leave(Holder& holder, const IpAddress& group, const IpAddress& source,
                   int& error_number) noexcept;
  // Leaves any group that it has joined. nullptr: there is none.
  LinkGroup* leave_any(Holder& holder) noexcept;

  // Whether a datagram from `source` to `group` is for this holder. Cost: a look at each that it
  // has.
  bool accepts(const Holder& holder, const IpAddress& group,
               const IpAddress& source) const noexcept;

  // Whether it has joined `group`, for whatever source.
  bool has(const Holder& holder, const IpAddress& group) const noexcept;

  // Groups lie at 0 to group_count_max() - 1, some unused. A group that was left becomes unused by
  // forget_if_left().
  uint32_t group_count_max() const noexcept { return count_max_; }
  LinkGroup& group(uint32_t index) noexcept {
    BP_DCHECK(index < count_max_);
    return groups_[index];
  }
  const LinkGroup& group(uint32_t index) const noexcept {
    BP_DCHECK(index < count_max_);
    return groups_[index];
  }
  LinkGroup* find_group(const IpAddress& address) noexcept;
  void forget_if_left(LinkGroup& group) noexcept;
  // Fills in the wanted sources of it, each once. Returns how many. Requires: it does not want all.
  uint32_t sources(const LinkGroup& group, IpAddress (&sources)[kSourceCountMax]) const noexcept;

  bool is_valid() const noexcept;

 private:
  struct Membership {
    IpAddress source;
    uint32_t group = kNone;  // kNone: free
    uint32_t next = kNone;   // of its holder, or of those that are free
  };
  uint32_t* find_link(Holder& holder, const IpAddress& group, const IpAddress& source) noexcept;
  LinkGroup* remove(uint32_t& link) noexcept;

  uint32_t count_max_;
  std::unique_ptr<Membership[]> memberships_;
  std::unique_ptr<LinkGroup[]> groups_;
  uint32_t first_free_ = 0;
};

}  // namespace bedplate
