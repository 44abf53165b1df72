#include "transport/vfio/vfio_pool.h"

#include <algorithm>

#include "transport/vfio/pci_device.h"
#include "transport/vfio/vfio_preflight.h"

namespace bedplate {

bool VfioPool::is_valid() const noexcept {
  if (is_mapped_ && (!container_.is_open() || group_count() == 0)) return false;
  for (uint32_t i = 0; i < pool_.segment_count() && !is_mapped_; ++i) {
    if (keys_.key(pool_.segment(i).address, 1).key != kNoKey) return false;
  }
  return container_.is_valid() && keys_.is_valid();
}

Result<void> VfioPool::open_container() {
  if (container_.is_open()) return {};
  return container_.open();
}

Result<void> VfioPool::map_pool() {
  if (is_mapped_) return {};
  BP_ASSERT(!pool_.is_sealed());
  BP_TRY_ASSIGN(const auto info, container_.info());
  uint64_t first = UINT64_MAX;
  uint64_t last = 0;
  for (uint32_t i = 0; i < pool_.segment_count(); ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(pool_.segment(i).address);
    first = std::min(first, begin);
    last = std::max(last, begin + pool_.segment(i).bytes - 1);
  }
  BP_TRY(check_reach(info.ranges, first, last));
  BP_TRY(keys_.create(pool_, device_));
  is_mapped_ = true;
  return {};
}

Result<Fd> VfioPool::open_device(const std::string& address) {
  BP_TRY(check_pci_device(address));
  BP_TRY_ASSIGN(const auto device, look_up_pci_device(address));
  BP_TRY(open_group(device.group));
  return container_.open_device(device.group, address);
}

Result<void> VfioPool::open_group(const std::string& number) {
  BP_KEEPS_VALID(*this);
  BP_TRY(open_container());
  BP_TRY(container_.open_group(number));
  return map_pool();
}

Result<void> VfioPool::add_group(int group, const std::string& number) {
  BP_KEEPS_VALID(*this);
  BP_TRY(open_container());
  BP_TRY(container_.add_group(group, number));
  return map_pool();
}

void VfioPool::close() noexcept {
  BP_KEEPS_VALID(*this);
  if (is_mapped_) keys_.destroy();
  is_mapped_ = false;
  container_.close();
}

}  // namespace bedplate
