// A VFIO container: one address space of the IOMMU, for the groups of devices that are put into it.
//
// Every device of its groups may read and write the memory that is mapped here, at its address in
// this process: the IOVA is the virtual address. The IOMMU is VFIO's type 1 (Intel's, AMD's and
// Arm's). Only the kernel's interface is used (linux/vfio.h).
//
// Invariants, checked by is_valid() around each change: 1. Only an open container has groups. 2. A
// group is in it once, has a number, and is held by a descriptor of the container's own. Checked by
// map and unmap: 3. Whole pages are mapped, and unmapped as they were mapped.
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

// Parses the kernel's answer, a vfio_iommu_type1_info with its chain of capabilities. Skips
// capabilities outside the answer.
VfioInfo parse_vfio_info(std::span<const std::byte> answer);

// Checks that `ranges` cover all of [first, last]. Errors (kSystem): the ranges, and the cure.
Result<void> check_reach(std::span<const IovaRange> ranges, uint64_t first, uint64_t last);

class VfioContainer {
 public:
  // Errors: the kernel has no VFIO, or this process may not use it.
  Result<void> open();
  bool is_open() const noexcept { return container_.is_open(); }

  // Opens the group `number` and adds it; the container holds it until close(). Does nothing if the
  // group is already in it. Errors: as add_group(); another opener has it.
  Result<void> open_group(const std::string& number);

  // Adds a group that another opener has opened, as DPDK opens the groups of its ports; both hold
  // it. The first group sets the type of the IOMMU; before it no mapping or query is possible.
  // Requires: it is open. Errors: other drivers have devices of the group; the group's IOMMU is not
  // of type 1, or does not remap interrupts.
  Result<void> add_group(int group, const std::string& number);
  uint32_t group_count() const noexcept { return static_cast<uint32_t>(groups_.size()); }
  bool has_group(const std::string& number) const noexcept { return find_group(number) != nullptr; }

  // Opens the device at `address` in the group `number`, which is in the container: for its
  // registers and interrupts (VFIO_DEVICE_*). The kernel resets it when it opens and when it
  // closes. Errors: no such device.
  Result<Fd> open_device(const std::string& number, const std::string& address) const;

  // Requires, from here on: the container has a group. Errors (kSystem): the kernel's.
  Result<VfioInfo> info() const;
  // How many more mappings the kernel would take; 0: it does not say. Allocates nothing.
  uint32_t mappings_left() const noexcept;

  // Maps whole pages for reading and writing, and pins them. Errors: already mapped; too many
  // mappings; the limit of locked memory; outside the IOMMU's reach.
  Result<void> map(const void* address, uint64_t bytes) noexcept;
  // Undoes one map(). Requires: no device uses it. No error if the kernel has already unmapped it,
  // because the container's last device has gone.
  void unmap(const void* address, uint64_t bytes) noexcept;

  // Releases all groups. Requires: no DMA is in flight.
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
