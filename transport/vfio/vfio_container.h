// A VFIO container: one address space of the IOMMU, which the container's groups of devices share.
//
// Every device of its groups may read and write the memory that is mapped here. The device uses the
// address that the memory has in this process: the IOVA is the virtual address. The IOMMU is VFIO's
// type 1 (Intel's, AMD's and Arm's). Only the kernel's interface is used (linux/vfio.h).
//
// Invariants, checked by is_valid() around each change: 1. Only an open container has groups. 2. A
// group is in it once, has a number, and is held by a descriptor of the container's own. 3. Whole
// pages are mapped, and unmapped as they were mapped (map and unmap check it).
// Threads: one at a time. It allocates: only for boot, except mappings_left().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// A range of IOVAs that can be mapped: from first to last, both included.
struct IovaRange {
  uint64_t first = 0;
  uint64_t last = 0;
};

// The answer of VFIO_IOMMU_GET_INFO.
struct VfioInfo {
  std::vector<IovaRange> ranges;  // empty: the kernel does not say (before Linux 5.4)
  // How many more mappings are possible; nothing: the kernel does not say (before Linux 5.10).
  std::optional<uint32_t> mappings_left;
};

// Parses the kernel's answer, a vfio_iommu_type1_info with its chain of capabilities. Stops at a
// capability that is not entirely inside the answer.
VfioInfo parse_vfio_info(std::span<const std::byte> answer);

// Checks that one of `ranges` covers all of [first, last]. No error if `ranges` is empty. Errors
// (kSystem): none covers it, with the cure.
Result<void> check_reach(std::span<const IovaRange> ranges, uint64_t first, uint64_t last);

class VfioContainer {
 public:
  // Errors (kSystem), here and below: the kernel has no VFIO, or this process may not use it.
  // Requires: it is not open.
  Result<void> open();
  bool is_open() const noexcept { return container_.is_open(); }

  // Opens the group `number` and adds it; the container holds it until close(). Does nothing if the
  // group is already in it. Requires: it is open. Errors: as add_group(); no such group; another
  // opener has the group; this process may not open it.
  Result<void> open_group(const std::string& number);

  // Adds a group that another opener has opened, as DPDK opens the groups of its ports; then both
  // hold the group. Does nothing if the group is already in it. The first group sets the type of
  // the IOMMU; before it no mapping or query is possible. Requires: it is open. Errors: other
  // drivers have devices of the group; the group's IOMMU is not of type 1, or does not remap
  // interrupts; another container has the group.
  Result<void> add_group(int group, const std::string& number);
  uint32_t group_count() const noexcept { return static_cast<uint32_t>(groups_.size()); }
  bool has_group(const std::string& number) const noexcept { return find_group(number) != nullptr; }

  // Opens the device at `address` in the group `number`, which is in the container: for its
  // registers and interrupts (VFIO_DEVICE_*). The kernel resets the device when it is opened, and
  // when the returned descriptor is closed. Errors: the kernel's; no such device in the group.
  Result<Fd> open_device(const std::string& number, const std::string& address) const;

  // Requires, from here to map(): the container has a group. Errors: the kernel's.
  Result<VfioInfo> info() const;
  // How many more mappings the kernel would take; 0: none, or the kernel does not say. Allocates
  // nothing.
  uint32_t mappings_left() const noexcept;

  // Maps whole pages for reading and writing, and pins them. Errors: already mapped; too many
  // mappings; the limit of locked memory; outside the IOMMU's reach.
  Result<void> map(const void* address, uint64_t bytes) noexcept;
  // Undoes one map(). Requires: the container is open; no device uses the memory. Does nothing if
  // the kernel has already unmapped it, because the container's last device has gone.
  void unmap(const void* address, uint64_t bytes) noexcept;

  // Releases all groups, and closes the container. Requires: no DMA is in flight.
  void close() noexcept;

  bool is_valid() const noexcept;

 private:
  struct Group {
    std::string number;
    Fd descriptor;
  };
  const Group* find_group(const std::string& number) const noexcept;

  Fd container_;
  std::vector<Group> groups_;
};

}  // namespace bedplate
