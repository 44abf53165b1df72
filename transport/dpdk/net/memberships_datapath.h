// The groups that the sockets of one shard have joined. A membership has one source, or all. For
// each group of the link, this knows the wanted sources, or that all are wanted.
//
// Invariants, checked by is_valid(): 1. Each membership is free or in the list of its holder.
// 2. Each membership in use has a group, which counts its memberships. A group without memberships
// stays until its leave is reported. Between leave() and GroupReports::changed() the invariants may
// not hold.
#pragma once

#include <cstdint>
#include <memory>

#include "platform/assert.h"
#include "transport/dpdk/net/ip_words_datapath.h"

namespace bedplate {

// A group of the link, in a table of Memberships.
struct LinkGroup {
  static constexpr uint64_t kNever = ~uint64_t{0};

  bool is_used() const noexcept { return address.family != 0; }
  bool is_joined() const noexcept { return member_count > 0; }
  bool wants_all() const noexcept { return any_count > 0; }

  IpAddress address;
  uint32_t member_count = 0;
  uint32_t any_count = 0;       // the memberships without a source
  uint32_t reports_left = 0;    // for the last change
  uint64_t report_ns = kNever;  // when the next report is due
  uint64_t answer_ns = kNever;  // when to answer a query for it
};

// Threads: the shard's, but for calls before the start. No allocation after construction.
class Memberships {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  // The most sources of one group, which fit into a report. The limit also holds while a member
  // wants all sources: that member may leave.
  static constexpr uint32_t kSourceCountMax = 64;

  // The memberships of one socket: the index of the first one in its list. kNone: it has none yet.
  using Holder = uint32_t;

  // Before the seal: it allocates. Requires: `count_max` is over 0.
  explicit Memberships(uint32_t count_max);

  // `source` of family 0: all sources. Returns the group; the caller then passes it to
  // GroupReports::changed(). Returns nullptr after an error, and sets `error_number`. join() sets
  // EINVAL (not a group, or a source that is a group or of another family), EADDRINUSE (this holder
  // has joined it with this source), or ENOBUFS (the table is full, or the group has
  // kSourceCountMax sources). leave() sets EADDRNOTAVAIL (not joined with this source).
  LinkGroup* join(Holder& holder, const IpAddress& group, const IpAddress& source,
                  int& error_number) noexcept;
  LinkGroup* leave(Holder& holder, const IpAddress& group, const IpAddress& source,
                   int& error_number) noexcept;
  // Leaves any one group that the holder has joined. Returns it, for GroupReports::changed(), or
  // nullptr if there is none.
  LinkGroup* leave_any(Holder& holder) noexcept;

  // Whether the holder accepts a datagram from `source` to `group`. Cost: a look at each of its
  // memberships.
  bool accepts(const Holder& holder, const IpAddress& group,
               const IpAddress& source) const noexcept;

  // Whether the holder has joined `group`, with whatever source.
  bool has(const Holder& holder, const IpAddress& group) const noexcept;

  // The groups have the indices 0 to group_count_max() - 1; some are unused. find_group() returns
  // nullptr if there is none. forget_if_left() frees a group without members.
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
  // Fills in the sources that members of the group have named, each once. Returns how many it
  // filled in.
  uint32_t sources(const LinkGroup& group, IpAddress (&sources)[kSourceCountMax]) const noexcept;

  bool is_valid() const noexcept;

 private:
  struct Membership {
    IpAddress source;
    uint32_t group = kNone;  // kNone: free
    uint32_t next = kNone;   // the next in its holder's list, or in the free list
  };
  uint32_t* find_link(Holder& holder, const IpAddress& group, const IpAddress& source) noexcept;
  LinkGroup* remove(uint32_t& link) noexcept;

  uint32_t count_max_;
  std::unique_ptr<Membership[]> memberships_;
  std::unique_ptr<LinkGroup[]> groups_;
  uint32_t first_free_ = 0;
};

}  // namespace bedplate
