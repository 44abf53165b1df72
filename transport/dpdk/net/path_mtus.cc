#include "platform/assert.h"
#include "transport/dpdk/net/path_mtus_datapath.h"

namespace bedplate {

PathMtus::PathMtus(uint32_t count_max)
    : count_max_(count_max), paths_(std::make_unique<Path[]>(count_max)) {
  BP_ASSERT(count_max > 0);
}

}  // namespace bedplate
