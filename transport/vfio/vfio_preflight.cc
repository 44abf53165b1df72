#include "transport/vfio/vfio_preflight.h"

#include <algorithm>
#include <cstring>

#include "platform/text.h"
#include "transport/vfio/vfio_container.h"
#include "transport/vfio/vfio_device.h"

namespace bedplate {
namespace {

constexpr char kTurnIommuOn[] =
    "turn the IOMMU on in the firmware (VT-d, AMD-Vi), and start the kernel with intel_iommu=on";

Error no_iommu(const PciDevice& device) noexcept {
  Error error = error_while("looking for the IOMMU of %s", device.address.c_str());
  if (device.is_without_iommu) {
    error.set_answer("vfio-pci has it in no-IOMMU mode, where devices reach all memory, by "
                     "physical addresses");
    return error.set_cure("%s instead of vfio.enable_unsafe_noiommu_mode=1", kTurnIommuOn);
  }
  error.set_answer("it has no IOMMU group: this machine has no IOMMU, or its kernel uses none");
  return error.set_cure("%s; in a virtual machine: -device intel-iommu,aw-bits=48,intremap=on,"
                        "caching-mode=on",
                        kTurnIommuOn);
}

Error other_driver(const PciDevice& device, bool has_vfio) noexcept {
  const char* at = device.address.c_str();
  const char* directory = "/sys/bus/pci/devices";
  Error error = error_while("checking who drives %s", at);
  const bool is_free = device.driver.empty();
  const std::string who = is_free ? "no driver does" : "the kernel's " + device.driver + " does";
  error.set_answer("%s%s", who.c_str(), has_vfio ? "" : ", and the kernel has no vfio-pci yet");
  const std::string unbind =
      is_free ? "" : std::string("echo ") + at + " > " + directory + "/" + at + "/driver/unbind; ";
  return error.set_cure("%secho %s > %s/%s/driver_override; %secho %s > /sys/bus/pci/drivers_probe",
                        has_vfio ? "" : "modprobe vfio-pci; ", kVfioDriver, directory, at,
                        unbind.c_str(), at);
}

Error other_drivers_in_group(const PciDevice& device, const std::string& who) noexcept {
  return error_while("checking IOMMU group %s, which contains %s", device.group.c_str(),
                     device.address.c_str())
      .set_answer("it also contains %s", who.c_str())
      .set_cure("bind these to vfio-pci, too, or to no driver; or put the device into a "
                "slot with a group of its own");
}

void add_once(const Error& error, std::vector<Error>* problems) {
  const auto is_it = [&](const Error& other) {
    return std::strcmp(other.doing, error.doing) == 0 &&
           std::strcmp(other.answer, error.answer) == 0;
  };
  if (std::none_of(problems->begin(), problems->end(), is_it)) problems->push_back(error);
}

// Checks the group in a container, as it will be used.
Result<void> check_iommu(const std::string& group, std::span<const SegmentSize> segments,
                         uint64_t first, uint64_t last) {
  VfioContainer container;
  BP_TRY(container.open());
  BP_TRY(container.open_group(group));
  BP_TRY_ASSIGN(const auto info, container.info());
  BP_TRY(check_reach(info.ranges, first, last));
  DeviceKind kind = kVfioKind;
  if (info.mappings_left) kind.region_count_max = *info.mappings_left;
  return check_fit(kind, segments);
}

}  // namespace

Result<void> check_pci_device(const std::string& address, const std::string& root) {
  BP_TRY_ASSIGN(const PciDevice device, look_up_pci_device(address, root));
  if (device.group.empty() || device.is_without_iommu) return no_iommu(device);
  if (device.driver != kVfioDriver) return other_driver(device, has_vfio_driver(root));
  std::string others;
  for (const PciDevice& neighbour : device.neighbours) {
    if (neighbour.driver.empty() || neighbour.driver == kVfioDriver) continue;
    add_word(&others, neighbour.address + " (" + neighbour.driver + ")");
  }
  if (!others.empty()) return other_drivers_in_group(device, others);
  return {};
}

void check_vfio(std::span<const std::string> devices, std::span<const SegmentSize> segments,
                uint64_t first, uint64_t last, std::vector<Error>* problems) {
  for (const std::string& address : devices) {
    if (auto looked = check_pci_device(address); !looked.ok()) {
      add_once(looked.error(), problems);
      continue;
    }
    const std::string group = look_up_pci_device(address).take().group;
    if (auto looked = check_iommu(group, segments, first, last); !looked.ok()) {
      add_once(looked.error(), problems);
    }
  }
}

}  // namespace bedplate
