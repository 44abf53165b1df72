// PCI devices, in a folder that stands for a machine.
#include "transport/vfio/pci_device.h"

#include <filesystem>
#include <fstream>

#include "platform/file.h"
#include "tests/support/fake_root.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::FakeRoot;

namespace {

constexpr char kNic[] = "0000:03:00.0";
constexpr char kDisk[] = "0000:00:1f.2";
constexpr char kBus[] = "0000:00:1f.3";
constexpr char kBridge[] = "0000:00:1f.0";

// A NIC with a group of its own, a disk that shares a group with a bus and a bridge, and drivers.
class Machine : public FakeRoot {
 public:
  Machine() {
    add(kNic, "0x020000", "17", "");
    add(kDisk, "0x010601", "4", "ahci");
    add(kBus, "0x0c0500", "4", "");
    add(kBridge, "0x060100", "4", "lpc_ich");
    write("/sys/bus/pci/drivers_probe", "");
  }
  void add(const std::string& address, const std::string& type, const std::string& group,
           const std::string& driver) {
    const std::string directory = "/sys/devices/" + address;
    write(directory + "/class", type + "\n");
    write(directory + "/driver_override", "");
    link(directory, "/sys/bus/pci/devices/" + address);
    link("/sys/kernel/iommu_groups/" + group, directory + "/iommu_group");
    link(directory, "/sys/kernel/iommu_groups/" + group + "/devices/" + address);
    if (!driver.empty()) bind(address, driver);
  }
  void bind(const std::string& address, const std::string& driver) {
    write("/sys/bus/pci/drivers/" + driver + "/unbind", "");
    link("/sys/bus/pci/drivers/" + driver, "/sys/devices/" + address + "/driver");
  }
  std::string text(const std::string& file) const {
    char text[128] = "";
    CHECK(read_text_file((path() + file).c_str(), text, sizeof text).ok());
    return text;
  }

 private:
  void link(const std::string& target, const std::string& link_path) {
    const std::filesystem::path at(path() + link_path);
    std::filesystem::create_directories(at.parent_path());
    std::filesystem::create_directories(path() + target);
    std::filesystem::remove(at);
    std::filesystem::create_directory_symlink(path() + target, at);
  }
};

std::string text_of(const Error& error) {
  char text[1024];
  return format_error(error, text, sizeof text);
}

}  // namespace

TEST_GROUP(PciDevice) { Machine machine; };

TEST(PciDevice, AddressesHaveOneForm) {
  for (const char* good : {"0000:03:00.0", "10aF:ff:1f.7"}) CHECK(is_pci_address(good));
  for (const char* bad : {"", "03:00.0", "0000:03:00.8", "0000:03:00.0 ", "0000:03:00,0",
                          "0000:0g:00.0", "../00:00:00.0"}) {
    CHECK_FALSE(is_pci_address(bad));
  }
}

TEST(PciDevice, IsShownWithItsDriverAndItsGroup) {
  auto nic = look_up_pci_device(kNic, machine.path());
  CHECK(nic.ok());
  STRCMP_EQUAL("", nic.value().driver.c_str());
  STRCMP_EQUAL("17", nic.value().group.c_str());
  CHECK_FALSE(nic.value().is_without_iommu);
  LONGS_EQUAL(0, nic.value().neighbours.size());
}

TEST(PciDevice, NeighboursAreOfTheGroupButForBridges) {
  auto disk = look_up_pci_device(kDisk, machine.path());
  CHECK(disk.ok());
  STRCMP_EQUAL("ahci", disk.value().driver.c_str());
  LONGS_EQUAL(1, disk.value().neighbours.size());
  STRCMP_EQUAL(kBus, disk.value().neighbours[0].address.c_str());
}

TEST(PciDevice, ThatIsNotThereIsToldFromThoseThatAre) {
  auto none = look_up_pci_device("0000:04:00.0", machine.path());
  STRCMP_EQUAL(
      "looking for the PCI device 0000:04:00.0: there is none at this address; there are: "
      "0000:00:1f.2, 0000:00:1f.3, 0000:03:00.0; correct the address (lspci -D lists the devices)",
      text_of(none.error()).c_str());
  CHECK_FALSE(look_up_pci_device("..", machine.path()).ok());
}

TEST(PciDevice, NoIommuModeIsSeen) {
  machine.write("/sys/kernel/iommu_groups/17/name", "vfio-noiommu\n");
  CHECK(look_up_pci_device(kNic, machine.path()).value().is_without_iommu);
}

TEST(PciDevice, IsReservedAndTakenFromItsDriver) {
  CHECK(reserve_for_vfio(kDisk, machine.path()).ok());
  STRCMP_EQUAL("vfio-pci", machine.text("/sys/devices/0000:00:1f.2/driver_override").c_str());
  // No kernel binds drivers in this machine.
  auto given = give_to_vfio(kDisk, machine.path());
  STRCMP_EQUAL(kDisk, machine.text("/sys/bus/pci/drivers/ahci/unbind").c_str());
  STRCMP_EQUAL(kDisk, machine.text("/sys/bus/pci/drivers_probe").c_str());
  STRCMP_CONTAINS("giving the PCI device 0000:00:1f.2 to vfio-pci: afterwards ahci has it",
                  text_of(given.error()).c_str());
}

TEST(PciDevice, OneThatVfioHasIsLeftAlone) {
  machine.bind(kNic, "vfio-pci");
  CHECK(give_to_vfio(kNic, machine.path()).ok());
  STRCMP_EQUAL("", machine.text("/sys/bus/pci/drivers/vfio-pci/unbind").c_str());
  STRCMP_EQUAL("", machine.text("/sys/bus/pci/drivers_probe").c_str());
}

TEST(PciDevice, ItsNumbersAreRead) {
  const std::string directory = std::string("/sys/devices/") + kNic;
  machine.write(directory + "/vendor", "0x8086\n");
  machine.write(directory + "/device", "0x10d3\n");
  machine.write(directory + "/subsystem_vendor", "0x15d9\n");
  CHECK_FALSE(read_pci_identity(kNic, machine.path()).ok());  // one is missing
  machine.write(directory + "/subsystem_device", "0x060a\n");
  const PciIdentity identity = read_pci_identity(kNic, machine.path()).take();
  LONGS_EQUAL(0x8086, identity.vendor);
  LONGS_EQUAL(0x10d3, identity.device);
  LONGS_EQUAL(0x15d9, identity.subsystem_vendor);
  LONGS_EQUAL(0x060a, identity.subsystem_device);
  CHECK_FALSE(read_pci_identity("0000:03:00.7", machine.path()).ok());
}
