// The groups that sockets join and leave. Each change is reported to the routers of the link.
#pragma once

#include "transport/dpdk/net/group_reports_datapath.h"
#include "transport/dpdk/net/memberships_datapath.h"

namespace bedplate {

// Threads: the shard's, but for calls before the start.
class SocketGroups {
 public:
  // The arguments outlive it.
  SocketGroups(Memberships& memberships, GroupReports& reports) noexcept
      : memberships_(memberships), reports_(reports) {}

  // Joins or leaves `group`. `source` of family 0: all sources. Returns 0 or an errno value
  // (Memberships::join, leave).
  int change(bool is_join, Memberships::Holder& holder, const IpAddress& group,
             const IpAddress& source) noexcept;
  void leave_all(Memberships::Holder& holder) noexcept;

  bool accepts(const Memberships::Holder& holder, const IpAddress& group,
               const IpAddress& source) const noexcept {
    return memberships_.accepts(holder, group, source);
  }
  bool has_joined(const Memberships::Holder& holder, const IpAddress& group) const noexcept {
    return memberships_.has(holder, group);
  }

 private:
  Memberships& memberships_;
  GroupReports& reports_;
};

}  // namespace bedplate
