// VFIO as a registration device: the mappings of one container are the registration of the pool.
//
// Every device in the container's groups then reaches the pool, and no other memory. A mapping of
// any size is one entry of the kernel's list, whose length is limited. A pointer plus the key is
// the device's address: both are equal, so the key is 0. Errors are the container's
// (VfioContainer::map). Threads: one at a time. It registers before the seal.
//
// Invariants: 1. It has at most one registration, which is undone before it is destroyed.
// (register_regions, deregister_regions, ~VfioDevice) 2. Each region is within the device's limits,
// at its own address. (register_regions)
#pragma once

#include "transport/registration.h"
#include "transport/vfio/vfio_container.h"

namespace bedplate {

// The most mappings of a container if the kernel does not say: the default of
// vfio_iommu_type1.dma_entry_limit.
inline constexpr uint64_t kVfioMappingCountMax = 65535;

inline constexpr DeviceKind kVfioKind = {.name = "VFIO",
                                         .instead = "raise vfio_iommu_type1.dma_entry_limit",
                                         .holds_pages = true,
                                         .region_bytes_max = kGiB,
                                         .region_count_max = kVfioMappingCountMax};

class VfioDevice final : public Device {
 public:
  // `container` outlives this, and has a group before anything is registered.
  explicit VfioDevice(VfioContainer& container) noexcept : container_(container) {}
  // Requires: its registration was undone, while the container was open.
  ~VfioDevice() override { BP_ASSERT(!is_registered_); }

  const DeviceKind& kind() const noexcept override { return kVfioKind; }
  Result<void> register_regions(std::span<Region> regions) override;
  void deregister_regions(std::span<const Region> regions) noexcept override;

 private:
  void unmap(std::span<const Region> regions) noexcept;

  VfioContainer& container_;
  bool is_registered_ = false;
};

}  // namespace bedplate
