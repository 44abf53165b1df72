// A VFIO container: one address space of the IOMMU, for the groups of devices that are put into it.
//
// Every device of its groups may read and write the memory that is mapped here, at the address that
// it has in this process: the IOVA is the virtual address. The IOMMU is that of VFIO's type 1
// (Intel's, AMD's and Arm's). Nothing but the kernel's interface is used (linux/vfio.h).
//
// Invariants, which is_valid() looks at around each change: 1. Only an open container has groups.
// 2. A group is there once, has a number, and is held by a descriptor of the container's own. And:
// 3. Whole pages are mapped, and taken back as they were mapped (map, unmap).
// Threads: one at a time. It allocates: for boot alone, but for mappings_left().
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

// IOVAs that can be mapped: first to last, both included.
struct IovaRange {
  uint64_t first = 0;
  uint64_t last = 0;
};

// The answer of VFIO_IOMMU_GET_INFO.
struct VfioInfo {
  std::vector<IovaRange> ranges;  // empty: the kernel does not say (before Linux 5.4)
  // How many more mappings there may be; nothing: the kernel does not say (before Linux 5.10).
  std::optional<uint32_t> mappings_left;
};

// Reads the kernel's answer, a vfio_iommu_type1_info with its chain of capabilities. Capabilities
// outside of it are left out.
VfioInfo parse_vfio_info(std::span<const std::byte> answer);

// Checks that `ranges` have all of [first, last]. Errors (kSystem): what there is, and the cure.
Result<void> check_reach(std::span<const IovaRange> ranges, uint64_t first, uint64_t last);

class VfioContainer {
 public:
  // Errors: the kernel has no VFIO, or it may not be used.
  Result<void> open();
  bool is_open() const noexcept { return container_.is_open(); }

  // Opens the group with this number and adds it, so that the container holds it until close().
  // One that is there already is no error. Errors: as add_group(); somebody else has it open.
  Result<void> open_group(const std::string& number);

  // Adds a group that somebody else has opened, as DPDK opens those of its ports; both hold it. The
  // first group makes the IOMMU known; before it nothing can be mapped or asked.
  // Requires: it is open. Errors: devices of the group are with other drivers; the IOMMU of
  // the group is none of type 1, or it does not remap interrupts.
  Result<void> add_group(int group, const std::string& number);
  uint32_t group_count() const noexcept { return static_cast<uint32_t>(groups_.size()); }
  bool has_group(const std::string& number) const noexcept { return find_group(number) != nullptr; }

  // A device of the group `number`, which is here, by its address: for its registers and interrupts
  // (VFIO_DEVICE_*). It is reset as it opens, and when it closes. Errors: it is no such device.
  Result<Fd> open_device(const std::string& number, const std::string& address) const;

  // Requires, from here on: there is a group. Errors (kSystem): the kernel's, when it is asked.
  Result<VfioInfo> info() const;
  // By the kernel's own count; 0: it does not say. Allocates nothing.
  uint32_t mappings_left() const noexcept;

  // Maps whole pages, to be read and written, and holds them. Errors: they are mapped already, too
  // many mappings, the limit of locked memory, outside of the IOMMU's reach.
  Result<void> map(const void* address, uint64_t bytes) noexcept;
  // Takes one map() back. Requires: no device uses it. It is no error if the kernel took the
  // mapping back itself, because the container's last device has gone.
  void unmap(const void* address, uint64_t bytes) noexcept;

  // Lets go of all groups. Requires: nothing is in flight.
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
