// The obstacles between a PCI device and a driver of Bedplate. Each is reported in one line.
// tests/guest/vfio_test.py tests the answers of a machine with an IOMMU.
#include "transport/vfio/vfio_preflight.h"

#include <filesystem>

#include "tests/support/fake_root.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::FakeRoot;

namespace {

constexpr char kNic[] = "0000:03:00.0";

class Machine : public FakeRoot {
 public:
  void load_vfio() { write("/sys/bus/pci/drivers/vfio-pci/bind", ""); }
  void add(const std::string& address, const std::string& group, const std::string& driver) {
    const std::string device = "/sys/bus/pci/devices/" + address;
    write(device + "/class", "0x020000\n");
    if (!driver.empty()) link("/sys/bus/pci/drivers/" + driver, device + "/driver");
    if (group.empty()) return;
    link("/sys/kernel/iommu_groups/" + group, device + "/iommu_group");
    link(device, "/sys/kernel/iommu_groups/" + group + "/devices/" + address);
  }
  std::string check() const {
    auto checked = check_pci_device(kNic, path());
    char text[1024] = "";
    return checked.ok() ? "" : format_error(checked.error(), text, sizeof text);
  }

 private:
  void link(const std::string& target, const std::string& link_path) {
    std::filesystem::create_directories(path() + target);
    std::filesystem::create_directories(std::filesystem::path(path() + link_path).parent_path());
    std::filesystem::create_directory_symlink(path() + target, path() + link_path);
  }
};

}  // namespace

TEST_GROUP(VfioPreflight) { Machine machine; };

TEST(VfioPreflight, ADeviceThatVfioHasIsGood) {
  machine.add(kNic, "17", "vfio-pci");
  machine.add("0000:03:00.1", "17", "vfio-pci");
  machine.add("0000:03:00.2", "17", "");
  STRCMP_EQUAL("", machine.check().c_str());
}

TEST(VfioPreflight, AMachineWithoutAnIommuIsTold) {
  machine.add(kNic, "", "e1000e");
  STRCMP_EQUAL("looking for the IOMMU of 0000:03:00.0: it has no IOMMU group: this machine has no "
               "IOMMU, or its kernel uses none; turn the IOMMU on in the firmware (VT-d, AMD-Vi), "
               "and start the kernel with intel_iommu=on; in a virtual machine: -device "
               "intel-iommu,aw-bits=48,intremap=on,caching-mode=on",
               machine.check().c_str());
}

TEST(VfioPreflight, NoIommuModeIsRefused) {
  machine.add(kNic, "0", "vfio-pci");
  machine.write("/sys/kernel/iommu_groups/0/name", "vfio-noiommu\n");
  STRCMP_EQUAL("looking for the IOMMU of 0000:03:00.0: vfio-pci has it in no-IOMMU mode, where "
               "devices reach all memory, by physical addresses; turn the IOMMU on in the firmware "
               "(VT-d, AMD-Vi), and start the kernel with intel_iommu=on instead of "
               "vfio.enable_unsafe_noiommu_mode=1",
               machine.check().c_str());
}

TEST(VfioPreflight, ADeviceOfTheKernelsIsToldWithTheCommands) {
  machine.load_vfio();
  machine.add(kNic, "17", "e1000e");
  STRCMP_EQUAL("checking who drives 0000:03:00.0: the kernel's e1000e does; echo vfio-pci > "
               "/sys/bus/pci/devices/0000:03:00.0/driver_override; echo 0000:03:00.0 > "
               "/sys/bus/pci/devices/0000:03:00.0/driver/unbind; echo 0000:03:00.0 > "
               "/sys/bus/pci/drivers_probe",
               machine.check().c_str());
}

TEST(VfioPreflight, SoIsOneOfNobodys) {
  machine.load_vfio();
  machine.add(kNic, "17", "");
  STRCMP_EQUAL("checking who drives 0000:03:00.0: no driver does; echo vfio-pci > "
               "/sys/bus/pci/devices/0000:03:00.0/driver_override; echo 0000:03:00.0 > "
               "/sys/bus/pci/drivers_probe",
               machine.check().c_str());
}

TEST(VfioPreflight, WithoutVfioPciItsModuleIsNamedFirst) {
  machine.add(kNic, "17", "e1000e");
  STRCMP_EQUAL("checking who drives 0000:03:00.0: the kernel's e1000e does, and the kernel has no "
               "vfio-pci yet; modprobe vfio-pci; echo vfio-pci > "
               "/sys/bus/pci/devices/0000:03:00.0/driver_override; echo 0000:03:00.0 > "
               "/sys/bus/pci/devices/0000:03:00.0/driver/unbind; echo 0000:03:00.0 > "
               "/sys/bus/pci/drivers_probe",
               machine.check().c_str());
}

TEST(VfioPreflight, NeighboursOfTheKernelsAreNamed) {
  machine.add(kNic, "17", "vfio-pci");
  machine.add("0000:03:00.1", "17", "e1000e");
  STRCMP_EQUAL(
      "checking IOMMU group 17, which contains 0000:03:00.0: it also contains 0000:03:00.1 "
      "(e1000e); bind these to vfio-pci, too, or to no driver; or put the device into a "
      "slot with a group of its own",
      machine.check().c_str());
}

TEST(VfioPreflight, WhatSeveralDevicesLackIsSaidOnce) {
  const std::string devices[] = {"ffff:ff:1f.7", "ffff:ff:1f.7"};
  std::vector<Error> problems;
  check_vfio(devices, {}, 0, 0, &problems);
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("looking for the PCI device ffff:ff:1f.7", problems[0].doing);
}

// ---- Answers of a real IOMMU ----

// The preflight's answer for the first device that vfio-pci has, with `bytes` at the pool's
// address.
static std::string look(uint64_t bytes) {
  std::vector<std::string> devices;
  for (const std::string& address : list_pci_devices()) {
    const PciDevice device = look_up_pci_device(address).take();
    if (devices.empty() && device.driver == kVfioDriver && !device.is_without_iommu) {
      devices.push_back(address);
    }
  }
  if (devices.empty()) return "no device";
  const SegmentSize segment = {OwnerName("heap"), bytes};
  std::vector<Error> problems;
  check_vfio(devices, {&segment, 1}, kPoolBase, kPoolBase + bytes - 1, &problems);
  char text[1024] = "good";
  for (const Error& problem : problems) format_error(problem, text, sizeof text);
  return text;
}

TEST(VfioPreflight, ARealIommuTakesThePoolOrSaysWhyNot) {
  const std::string said = look(4 * kGiB);
  if (said == "no device") BP_SKIP("vfio-pci has no device behind an IOMMU");
  STRCMP_EQUAL("good", look(4 * kGiB).c_str());  // the first look left nothing behind
}

// vfio_iommu_type1.dma_entry_limit is no more than 65535 in Linux.
TEST(VfioPreflight, MoreMappingsThanTheKernelTakesAreRefused) {
  const std::string said = look(70000 * kGiB);
  if (said == "no device") BP_SKIP("vfio-pci has no device behind an IOMMU");
  STRCMP_CONTAINS("70000 regions of at most 1 GiB are needed (heap 70000), it accepts 65535; ",
                  said.c_str());
  STRCMP_CONTAINS("or raise vfio_iommu_type1.dma_entry_limit", said.c_str());
}
