#include "platform/assert.h"
#include "transport/dpdk/net/path_mtus_datapath.h"

namespace bedplate {

PathMtus::PathMtus(uint32_t count_max)
    : count_max_(count_max), paths_(std::make_unique<Path[]>(count_max)) {
  BP_ASSERT(count_max > 0);
}

bool PathMtus::is_valid() const noexcept {
  for (uint32_t i = 0; i < count_max_; ++i) {
    const Path& path = paths_[i];
    if (path.to.family == 0) continue;
    if (path.mtu_bytes < min_bytes(path.to.family) || path.end_ns > end_ns_) return false;
    for (uint32_t k = 0; k < i; ++k) {
      if (is_same(paths_[k].to, path.to)) return false;
    }
  }
  return true;
}

}  // namespace bedplate
