// The pool in a VFIO container: the services of an appliance put their devices into it.
//
// There is one container for all services, so the pool is mapped once, with the first group, by as
// few entries as it has regions. Later groups use the same mappings. Before the seal.
//
// Invariants, checked by is_valid() around each change: 1. The pool is mapped only into an open
// container with a group. 2. There are keys only while it is mapped.
// Threads: the main thread, but for mappings_left().
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
  // device for its driver (VfioContainer::open_device), which closes it before close().
  // Errors: no such device; the container's; the IOMMU's reach; KeyTable::create's.
  Result<Fd> open_device(const std::string& address);
  // The same for the group `number`, without a device. The group is opened here, or by another
  // opener as `group`; that opener may close its own descriptor (VfioContainer::add_group).
  Result<void> open_group(const std::string& number);
  Result<void> add_group(int group, const std::string& number);

  uint32_t group_count() const noexcept { return container_.group_count(); }
  const KeyTable& keys() const noexcept { return keys_; }
  // How many more mappings the kernel would take; constant from the seal on. 0 without a group.
  // Threads: any.
  uint32_t mappings_left() const noexcept {
    return group_count() == 0 ? 0 : container_.mappings_left();
  }

  // Requires: no device of its groups uses the pool any more.
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
