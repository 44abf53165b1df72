#include "transport/vfio/vfio_device.h"

namespace bedplate {

Result<void> VfioDevice::register_regions(std::span<Region> regions) {
  BP_ASSERT(!is_registered_ && container_.group_count() > 0);
  for (size_t i = 0; i < regions.size(); ++i) {
    BP_DCHECK(regions[i].bytes <= kVfioKind.region_bytes_max && regions[i].key == kNoKey);
    if (auto mapped = container_.map(regions[i].address, regions[i].bytes); !mapped.ok()) {
      unmap(regions.first(i));
      return mapped;
    }
    regions[i].key = 0;
  }
  is_registered_ = true;
  return {};
}

void VfioDevice::deregister_regions(std::span<const Region> regions) noexcept {
  BP_ASSERT(is_registered_);
  is_registered_ = false;
  unmap(regions);
}

void VfioDevice::unmap(std::span<const Region> regions) noexcept {
  for (const Region& region : regions) container_.unmap(region.address, region.bytes);
}

}  // namespace bedplate
