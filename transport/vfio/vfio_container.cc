#include "transport/vfio/vfio_container.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstring>
#include <fcntl.h>

#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/product.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr char kContainer[] = "/dev/vfio/vfio";
// A longer chain of capabilities is cut; the needed ones are in its first few hundred bytes.
constexpr size_t kInfoBytes = 16 << 10;

// Reads a struct at `offset` of `answer`; nothing if it is not entirely inside.
template <typename T>
std::optional<T> read_at(std::span<const std::byte> answer, size_t offset) noexcept {
  if (offset > answer.size() || answer.size() - offset < sizeof(T)) return {};
  T value;
  std::memcpy(&value, answer.data() + offset, sizeof value);
  return value;
}

// Calls `see(id, offset)` for each capability. Stops at an offset that does not go forward.
template <typename See>
void for_each_capability(std::span<const std::byte> answer, const See& see) noexcept {
  const auto info = read_at<vfio_iommu_type1_info>(answer, 0);
  if (!info || (info->flags & VFIO_IOMMU_INFO_CAPS) == 0) return;
  size_t offset = info->cap_offset;
  while (const auto header = read_at<vfio_info_cap_header>(answer, offset)) {
    see(header->id, offset);
    if (header->next <= offset) return;
    offset = header->next;
  }
}

std::optional<uint32_t> mappings_left_in(std::span<const std::byte> answer) noexcept {
  std::optional<uint32_t> left;
  for_each_capability(answer, [&](uint16_t id, size_t offset) {
    if (id != VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL) return;
    const auto avail = read_at<vfio_iommu_type1_info_dma_avail>(answer, offset);
    if (avail) left = avail->avail;
  });
  return left;
}

// Asks for as much as fits into `answer`. Returns false if the kernel refuses; errno says why.
bool ask_for_info(int container, std::span<std::byte> answer) noexcept {
  vfio_iommu_type1_info head = {};
  head.argsz = static_cast<uint32_t>(answer.size());
  std::memcpy(answer.data(), &head, sizeof head);
  return ioctl(container, VFIO_IOMMU_GET_INFO, answer.data()) == 0;
}

bool are_whole_pages(const void* address, uint64_t bytes) noexcept {
  constexpr uint64_t kPageBytes = 4096;
  return bytes > 0 && (reinterpret_cast<uintptr_t>(address) | bytes) % kPageBytes == 0;
}

Error cannot_open_container() noexcept {
  const int reason = errno;
  Error error = error_from_errno("opening %s, which gives programs access to devices", kContainer);
  if (reason == EACCES || reason == EPERM) return error.set_cure("chmod 666 %s", kContainer);
  return error.set_cure("load the kernel's modules: modprobe -a vfio_iommu_type1 vfio-pci");
}

Error cannot_open_group(const std::string& number) noexcept {
  const int reason = errno;
  Error error = error_from_errno("opening /dev/vfio/%s, the IOMMU group", number.c_str());
  switch (reason) {
    case EBUSY: return error.set_cure("end the other program that uses a device of the group");
    case EACCES:
      return error.set_cure("chown it to the user that the appliance runs as, or run as root");
    case EPERM: return error.set_cure("run as root: the group has no IOMMU");
    default: return error.set_cure("bind the group's devices to vfio-pci");
  }
}

}  // namespace

VfioInfo parse_vfio_info(std::span<const std::byte> answer) {
  VfioInfo info;
  info.mappings_left = mappings_left_in(answer);
  for_each_capability(answer, [&](uint16_t id, size_t offset) {
    if (id != VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE) return;
    using Ranges = vfio_iommu_type1_info_cap_iova_range;
    const auto count = read_at<uint32_t>(answer, offset + offsetof(Ranges, nr_iovas));
    offset += sizeof(Ranges);
    for (uint32_t i = 0; i < count.value_or(0); ++i, offset += sizeof(vfio_iova_range)) {
      const auto range = read_at<vfio_iova_range>(answer, offset);
      if (!range) return;
      info.ranges.push_back({range->start, range->end});
    }
  });
  return info;
}

Result<void> check_reach(std::span<const IovaRange> ranges, uint64_t first, uint64_t last) {
  const auto has_all = [&](const IovaRange& range) {
    return range.first <= first && last <= range.last;
  };
  if (ranges.empty() || std::any_of(ranges.begin(), ranges.end(), has_all)) return {};
  uint64_t reach = 0;
  for (const IovaRange& range : ranges) reach = std::max(reach, range.last);
  Error error = error_while("comparing the pool's addresses, 0x%" PRIx64 " to 0x%" PRIx64
                            ", with those that the IOMMU accepts",
                            first, last);
  if (last > reach) {
    error.set_answer("it accepts %d address bits, %d are needed",
                     static_cast<int>(std::bit_width(reach)),
                     static_cast<int>(std::bit_width(last)));
    return error.set_cure(
        "give the virtual machine an IOMMU of 48 bits (QEMU: -device intel-iommu,aw-bits=48); if a "
        "machine's own IOMMU has fewer, leave the device to the kernel's driver");
  }
  error.set_answer("the machine reserves a part of them");
  return error.set_cure("this machine is not supported: report the contents of "
                        "/sys/kernel/iommu_groups/*/reserved_regions to the makers of Bedplate");
}

bool VfioContainer::is_valid() const noexcept {
  for (const Group& group : groups_) {
    if (!is_open() || group.number.empty() || !group.descriptor.is_open()) return false;
    if (find_group(group.number) != &group) return false;
  }
  return true;
}

Result<void> VfioContainer::open() {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(!is_open() && groups_.empty());
  container_ = Fd(::open(kContainer, O_RDWR | O_CLOEXEC));
  if (!container_.is_open()) return cannot_open_container();
  if (ioctl(container_.number(), VFIO_GET_API_VERSION) == VFIO_API_VERSION &&
      ioctl(container_.number(), VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) > 0) {
    return {};
  }
  close();
  return error_while("looking for VFIO's IOMMU of type 1")
      .set_answer("this kernel has none")
      .set_cure("load its module: modprobe vfio_iommu_type1");
}

const VfioContainer::Group* VfioContainer::find_group(const std::string& number) const noexcept {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Group& group) { return group.number == number; });
  return found == groups_.end() ? nullptr : &*found;
}

Result<void> VfioContainer::open_group(const std::string& number) {
  if (has_group(number)) return {};
  Fd group(::open(("/dev/vfio/" + number).c_str(), O_RDWR | O_CLOEXEC));
  if (!group.is_open()) return cannot_open_group(number);
  return add_group(group.number(), number);
}

Result<void> VfioContainer::add_group(int group, const std::string& number) {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(is_open() && group >= 0 && !number.empty());
  if (has_group(number)) return {};
  vfio_group_status status = {.argsz = sizeof status, .flags = 0};
  if (ioctl(group, VFIO_GROUP_GET_STATUS, &status) != 0) {
    return error_from_errno("reading the state of IOMMU group %s", number.c_str())
        .set_cure("see the kernel's log for more (dmesg)");
  }
  if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
    return error_while("checking IOMMU group %s", number.c_str())
        .set_answer("the kernel's drivers use devices of it")
        .set_cure("bind all of the group's devices to vfio-pci, or to no driver");
  }
  const int container = container_.number();
  if (ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) != 0) {
    return error_from_errno("adding IOMMU group %s to the container", number.c_str())
        .set_cure("end the other program that uses a device of the group");
  }
  if (groups_.empty() && ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0) {
    const Error error =
        error_from_errno("turning on translation for IOMMU group %s", number.c_str())
            .set_cure("turn interrupt remapping on in the firmware (QEMU: intremap=on); see the "
                      "kernel's log for more (dmesg)");
    ioctl(group, VFIO_GROUP_UNSET_CONTAINER);
    return error;
  }
  // A duplicate descriptor: the group stays in the container when the other one is closed.
  Fd twin(fcntl(group, F_DUPFD_CLOEXEC, 0));
  if (!twin.is_open()) {
    return error_from_errno("holding IOMMU group %s", number.c_str())
        .set_cure("raise the limit of open files (ulimit -n)");
  }
  groups_.push_back({number, std::move(twin)});
  return {};
}

Result<Fd> VfioContainer::open_device(const std::string& number, const std::string& address) const {
  const Group* group = find_group(number);
  BP_ASSERT(group != nullptr);
  Fd device(ioctl(group->descriptor.number(), VFIO_GROUP_GET_DEVICE_FD, address.c_str()));
  if (device.is_open()) return device;
  return error_from_errno("opening the PCI device %s of IOMMU group %s", address.c_str(),
                          number.c_str())
      .set_cure("see the kernel's log for more (dmesg)");
}

Result<VfioInfo> VfioContainer::info() const {
  BP_ASSERT(!groups_.empty());
  std::vector<std::byte> answer(kInfoBytes);
  if (!ask_for_info(container_.number(), answer)) {
    return error_from_errno("asking the IOMMU for its limits")
        .set_cure("see the kernel's log for more (dmesg)");
  }
  return parse_vfio_info(answer);
}

uint32_t VfioContainer::mappings_left() const noexcept {
  BP_DCHECK(!groups_.empty());
  alignas(vfio_iommu_type1_info) std::byte answer[1024] = {};
  if (!ask_for_info(container_.number(), answer)) return 0;
  return mappings_left_in(answer).value_or(0);
}

Result<void> VfioContainer::map(const void* address, uint64_t bytes) noexcept {
  BP_ASSERT(!groups_.empty());  // the first group sets the IOMMU
  BP_DCHECK(are_whole_pages(address, bytes));
  vfio_iommu_type1_dma_map map = {};
  map.argsz = sizeof map;
  map.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE;
  map.vaddr = map.iova = reinterpret_cast<uintptr_t>(address);
  map.size = bytes;
  if (ioctl(container_.number(), VFIO_IOMMU_MAP_DMA, &map) == 0) return {};
  const int reason = errno;
  Error error = error_from_errno("mapping %s at %p for devices", format_bytes(bytes).text, address);
  switch (reason) {
    case ENOMEM: return error.set_cure("raise the limit of locked memory: ulimit -l unlimited");
    case ENOSPC:
      return error.set_cure("raise vfio_iommu_type1.dma_entry_limit: there are more mappings");
    case EINVAL:
      return error.set_cure("the IOMMU does not accept these addresses (`%s check` shows why)",
                            product().name);
    default:
      return error.set_cure("this is a defect, unless another program maps for this container");
  }
}

void VfioContainer::unmap(const void* address, uint64_t bytes) noexcept {
  BP_DCHECK(is_open() && are_whole_pages(address, bytes));
  vfio_iommu_type1_dma_unmap unmap = {};
  unmap.argsz = sizeof unmap;
  unmap.iova = reinterpret_cast<uintptr_t>(address);
  unmap.size = bytes;
  if (ioctl(container_.number(), VFIO_IOMMU_UNMAP_DMA, &unmap) != 0) return;
  BP_DCHECK(unmap.size == 0 || unmap.size == bytes);  // one whole mapping, or none
}

void VfioContainer::close() noexcept {
  BP_KEEPS_VALID(*this);
  groups_.clear();
  container_.close();
}

}  // namespace bedplate
