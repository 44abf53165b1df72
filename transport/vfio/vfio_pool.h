// The pool in a VFIO container: the services of an appliance put their devices into it.
//
// All services share one container, so the pool is mapped once, with the first group: one mapping
// for each region. Later groups use the same mappings. The first group must come before the seal.
//
// Invariants, checked by is_valid() around each change: 1. The pool is mapped only into an open
// container with a group. 2. There are keys only while it is mapped.
// Threads: the main thread, except mappings_left().
#pragma once

#include <string>

#include "transport/registration.h"
#include "transport/vfio/vfio_container.h"
#include "transport/vfio/vfio_device.h"

namespace bedplate {

class VfioPool {
 public:
  // `pool` outlives this object.
  explicit VfioPool(PinnedPool& pool) noexcept : pool_(pool) {}
  VfioPool(const VfioPool&) = delete;
  VfioPool& operator=(const VfioPool&) = delete;
  ~VfioPool() { close(); }

  // Gives the pool to the PCI device at `address`, and to all devices of its IOMMU group. Opens the
  // device for its driver (VfioContainer::open_device), which closes it before close(). Errors:
  // check_pci_device's; the container's; check_reach's; KeyTable::create's.
  Result<Fd> open_device(const std::string& address);
  // Give the pool to all devices of the group `number`, and open no device. open_group() opens the
  // group. For add_group() another opener has opened it as `group`, and may close that descriptor
  // afterwards (VfioContainer::add_group). Errors: as open_device(), but for check_pci_device's.
  Result<void> open_group(const std::string& number);
  Result<void> add_group(int group, const std::string& number);

  uint32_t group_count() const noexcept { return container_.group_count(); }
  const KeyTable& keys() const noexcept { return keys_; }
  // How many more mappings the kernel would take; constant from the seal on. 0: none, no group, or
  // the kernel does not say. Threads: any, after the seal; before it, the main thread.
  uint32_t mappings_left() const noexcept {
    return group_count() == 0 ? 0 : container_.mappings_left();
  }

  // Unmaps the pool, and closes the container. Requires: no device of its groups uses the pool.
  void close() noexcept;

  bool is_valid() const noexcept;

 private:
  Result<void> open_container();
  Result<void> map_pool();

  PinnedPool& pool_;
  VfioContainer container_;
  VfioDevice device_{container_};
  KeyTable keys_;
  bool is_mapped_ = false;
};

}  // namespace bedplate
