// Tested by tests/transport/vfio/vfio_container_test.cc.
#include "transport/vfio/vfio_device.h"

namespace bedplate {

Result<void> VfioDevice::register_regions(std::span<Region> regions) {
  for (size_t i = 0; i < regions.size(); ++i) {
    if (auto mapped = container_.map(regions[i].address, regions[i].bytes); !mapped.ok()) {
      deregister_regions(regions.first(i));
      return mapped;
    }
    regions[i].key = 0;
  }
  return {};
}

void VfioDevice::deregister_regions(std::span<const Region> regions) noexcept {
  for (const Region& region : regions) container_.unmap(region.address, region.bytes);
}

}  // namespace bedplate
