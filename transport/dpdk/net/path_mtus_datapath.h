// Paths narrower than the link, as routers on the way have reported (RFC 1191, RFC 8201). A report
// is forgotten after ten minutes; then a wider packet may be tried again.
//
// A full table forgets the oldest report. A report below the minimum (kMinIpv4, kMinIpv6) is not
// believed.
//
// Invariants, which is_valid() looks at: 1. Each address is there once. 2. No known path is
// narrower than the minimum, or good for longer than the last report.
#pragma once

#include <cstdint>
#include <memory>

#include "platform/assert.h"
#include "transport/dpdk/net/ip_words_datapath.h"

namespace bedplate {

// Threads: the shard's. Nothing is allocated after it was made.
class PathMtus {
 public:
  static constexpr uint64_t kLifeNs = 600'000'000'000;
  static constexpr uint32_t kMinIpv4 = 552;  // as Linux has it: net.ipv4.route.min_pmtu
  static constexpr uint32_t kMinIpv6 = 1280;

  // Before the seal: it allocates. Requires: `count_max` is over 0.
  explicit PathMtus(uint32_t count_max);

  // Takes a router's report. Returns whether it was believed.
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

  // `otherwise`: the link's MTU. Cost: a look at each path, if any is known.
  uint32_t mtu_bytes(const IpAddress& to, uint32_t otherwise, uint64_t now_ns) const noexcept {
    BP_DCHECK(to.family != 0 && "an unused place has none");
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
  uint64_t end_ns_ = 0;  // of the last of them
};

}  // namespace bedplate
