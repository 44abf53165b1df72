// VFIO as a device: the mappings of one container are the registration of the pool.
//
// Every device in the container's groups then reaches the pool at its own addresses, and nothing
// else. A mapping is one entry of the kernel's list, which is limited, however many pages it has. A
// key is added to a pointer to get the device's address: it is 0. Errors are the container's
// (VfioContainer::map). Threads: one at a time, before the seal.
//
// Invariants: 1. It has one registration at most, which is taken back before it goes.
// (register_regions, deregister_regions, ~VfioDevice) 2. A region is one that the device takes, at
// its own address (register_regions).
#pragma once

#include "transport/registration.h"
#include "transport/vfio/vfio_container.h"

namespace bedplate {

// The mappings that a container may have if the kernel does not say: the default of
// vfio_iommu_type1.dma_entry_limit.
inline constexpr uint64_t kVfioMappingCountMax = 65535;

inline constexpr DeviceKind kVfioKind = {.name = "VFIO",
                                         .instead = "raise vfio_iommu_type1.dma_entry_limit",
                                         .holds_pages = true,
                                         .region_bytes_max = kGiB,
                                         .region_count_max = kVfioMappingCountMax};

class VfioDevice final : public Device {
 public:
  // `container` outlives the device, and has a group before anything is registered.
  explicit VfioDevice(VfioContainer& container) noexcept : container_(container) {}
  // Requires: what it registered was taken back, while the container was open.
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
