// Path MTUs below the link's, as routers have reported them (RFC 1191, RFC 8201). A report expires
// after ten minutes; then a larger packet may be tried again.
//
// A full table forgets the oldest report. It ignores a report below the minimum (kMinIpv4,
// kMinIpv6), and a report that would raise a known MTU.
//
// Invariants, checked by is_valid(): 1. Each address is in the table once. 2. No path has an MTU
// below the minimum, or expires after the last report does.
#pragma once

#include <cstdint>
#include <memory>

#include "platform/assert.h"
#include "transport/dpdk/net/ip_words_datapath.h"

namespace bedplate {

// Threads: the shard's. No allocation after construction.
class PathMtus {
 public:
  static constexpr uint64_t kLifeNs = 600'000'000'000;
  static constexpr uint32_t kMinIpv4 = 552;  // as in Linux: net.ipv4.route.min_pmtu
  static constexpr uint32_t kMinIpv6 = 1280;

  // Before the seal: it allocates. Requires: `count_max` is over 0.
  explicit PathMtus(uint32_t count_max);

  // Takes a router's report for the destination `to`. Returns false if it ignores the report.
  bool learn(const IpAddress& to, uint32_t mtu_bytes, uint64_t now_ns) noexcept {
    BP_KEEPS_VALID(*this);
    if (mtu_bytes < min_bytes(to.family)) return false;
    Path* chosen = &paths_[0];
    for (uint32_t i = 0; i < count_max_; ++i) {
      Path& path = paths_[i];
      if (is_same(path.to, to)) {
        if (now_ns < path.end_ns && mtu_bytes > path.mtu_bytes) return false;
        chosen = &path;
        break;
      }
      if (path.end_ns < chosen->end_ns) chosen = &path;
    }
    *chosen = {to, mtu_bytes, now_ns + kLifeNs};
    BP_DCHECK(chosen->end_ns >= end_ns_ && "time does not go back");
    end_ns_ = chosen->end_ns;
    return true;
  }

  // Returns the known MTU of the path to `to`, or `otherwise`, the link's, if that is smaller or
  // none is known. Cost: a look at each path, if any is known.
  uint32_t mtu_bytes(const IpAddress& to, uint32_t otherwise, uint64_t now_ns) const noexcept {
    BP_DCHECK(to.family != 0 && "an unused entry has none");
    if (now_ns >= end_ns_) return otherwise;
    for (uint32_t i = 0; i < count_max_; ++i) {
      const Path& path = paths_[i];
      if (path.mtu_bytes < otherwise && now_ns < path.end_ns && is_same(path.to, to)) {
        return path.mtu_bytes;
      }
    }
    return otherwise;
  }

  bool is_valid() const noexcept;

 private:
  static uint32_t min_bytes(int family) noexcept { return family == AF_INET ? kMinIpv4 : kMinIpv6; }
  struct Path {
    IpAddress to;
    uint32_t mtu_bytes = ~uint32_t{0};
    uint64_t end_ns = 0;
  };
  uint32_t count_max_;
  std::unique_ptr<Path[]> paths_;
  uint64_t end_ns_ = 0;  // when the last of the reports expires
};

}  // namespace bedplate
