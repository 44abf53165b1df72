#include "transport/shm/eager_stock.h"

#include <algorithm>

namespace bedplate {

void EagerStock::create(const ShmPlace& place) {
  BP_ASSERT(reserve_bytes_ == 0);
  is_threaded_ = place.is_threaded();
  const std::span<std::byte> region = place.eager_region_of(place.self());
  if (region.empty()) return;
  reserve_bytes_ =
      std::min(align_up(place.shape().eager_bytes, kCacheLineBytes) + 2 * kCacheLineBytes,
               region.size() / 2 / kCacheLineBytes * kCacheLineBytes);
  BP_ASSERT(reserve_bytes_ > 0);
  region_ = EagerRegion(region, place.member_count(), reserve_bytes_);
}

}  // namespace bedplate
