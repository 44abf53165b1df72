#include "transport/vfio/pci_device.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <dirent.h>
#include <fcntl.h>

#include <unistd.h>

#include "platform/file.h"
#include "platform/text.h"

namespace bedplate {
namespace {

constexpr char kAddressForm[] = "hhhh:hh:hh.o";  // h: hexadecimal digit, o: 0..7
constexpr size_t kListedMax = 8;

std::string directory_of(const std::string& address, const std::string& root) {
  return root + "/sys/bus/pci/devices/" + address;
}

// The last part of a link's target; empty: no link.
std::string link_name(const std::string& link) {
  char target[512];
  const ssize_t bytes = readlink(link.c_str(), target, sizeof target);
  if (bytes <= 0) return "";
  const std::string text(target, static_cast<size_t>(bytes));
  return text.substr(text.rfind('/') + 1);
}

// Bridges have the class 06.
bool is_bridge(const std::string& directory) {
  char text[16] = "";
  return read_text_file((directory + "/class").c_str(), text, sizeof text).ok() &&
         std::strncmp(text, "0x06", 4) == 0;
}

std::vector<std::string> addresses_in(const std::string& directory) {
  std::vector<std::string> addresses;
  DIR* opened = opendir(directory.c_str());
  if (opened == nullptr) return addresses;
  while (const dirent* entry = readdir(opened)) {
    if (is_pci_address(entry->d_name) && !is_bridge(directory + "/" + entry->d_name)) {
      addresses.emplace_back(entry->d_name);
    }
  }
  closedir(opened);
  std::sort(addresses.begin(), addresses.end());
  return addresses;
}

Error no_such_device(const std::string& address, const std::string& root) {
  std::string list;
  const std::vector<std::string> there = list_pci_devices(root);
  for (size_t i = 0; i < std::min(there.size(), kListedMax); ++i) add_word(&list, there[i]);
  if (there.size() > kListedMax) add_word(&list, "...");
  return error_while("looking for the PCI device %s", address.c_str())
      .set_answer("there is none at this address; there are: %s",
                  list.empty() ? "none" : list.c_str())
      .set_cure("correct the address (lspci -D lists the devices)");
}

Result<void> write_attribute(const std::string& file, const std::string& text) {
  const Fd opened(open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (opened.is_open() && write(opened.number(), text.data(), text.size()) >= 0) return {};
  return error_from_errno("writing %s into %s", text.c_str(), file.c_str())
      .set_cure("%s", errno == EACCES || errno == EROFS ? "do it as root"
                                                        : "see the kernel's log for more (dmesg)");
}

}  // namespace

bool is_pci_address(std::string_view text) noexcept {
  const std::string_view form = kAddressForm;
  if (text.size() != form.size()) return false;
  for (size_t i = 0; i < form.size(); ++i) {
    const bool is_good = form[i] == 'h'   ? std::isxdigit(static_cast<unsigned char>(text[i])) != 0
                         : form[i] == 'o' ? text[i] >= '0' && text[i] <= '7'
                                          : text[i] == form[i];
    if (!is_good) return false;
  }
  return true;
}

std::vector<std::string> list_pci_devices(const std::string& root) {
  return addresses_in(root + "/sys/bus/pci/devices");
}

Result<PciDevice> look_up_pci_device(const std::string& address, const std::string& root) {
  const std::string directory = directory_of(address, root);
  if (!is_pci_address(address) || access(directory.c_str(), F_OK) != 0) {
    return no_such_device(address, root);
  }
  PciDevice device;
  device.address = address;
  device.driver = link_name(directory + "/driver");
  device.group = link_name(directory + "/iommu_group");
  if (device.group.empty()) return device;
  const std::string group = directory + "/iommu_group";
  char name[32] = "";
  device.is_without_iommu = read_text_file((group + "/name").c_str(), name, sizeof name).ok() &&
                            std::strncmp(name, "vfio-noiommu", 12) == 0;
  for (const std::string& other : addresses_in(group + "/devices")) {
    if (other == address) continue;
    PciDevice neighbour;
    neighbour.address = other;
    neighbour.driver = link_name(group + "/devices/" + other + "/driver");
    neighbour.group = device.group;
    device.neighbours.push_back(neighbour);
  }
  return device;
}

Result<PciIdentity> read_pci_identity(const std::string& address, const std::string& root) {
  BP_TRY(look_up_pci_device(address, root));
  PciIdentity identity;
  const std::pair<const char*, uint16_t*> parts[] = {
      {"vendor", &identity.vendor},
      {"device", &identity.device},
      {"subsystem_vendor", &identity.subsystem_vendor},
      {"subsystem_device", &identity.subsystem_device}};
  for (const auto& [name, number] : parts) {
    char text[16] = "";
    const std::string file = directory_of(address, root) + "/" + name;
    BP_TRY(read_text_file(file.c_str(), text, sizeof text));
    *number = static_cast<uint16_t>(std::strtoul(text, nullptr, 16));
  }
  return identity;
}

bool has_vfio_driver(const std::string& root) {
  return access((root + "/sys/bus/pci/drivers/" + kVfioDriver).c_str(), F_OK) == 0;
}

Result<void> reserve_for_vfio(const std::string& address, const std::string& root) {
  BP_TRY(look_up_pci_device(address, root));
  return write_attribute(directory_of(address, root) + "/driver_override", kVfioDriver);
}

Result<void> give_to_vfio(const std::string& address, const std::string& root) {
  BP_TRY_ASSIGN(const auto device, look_up_pci_device(address, root));
  if (device.driver == kVfioDriver) return {};
  if (!device.driver.empty()) {
    BP_TRY(write_attribute(directory_of(address, root) + "/driver/unbind", address));
  }
  BP_TRY(write_attribute(root + "/sys/bus/pci/drivers_probe", address));
  const std::string driver = link_name(directory_of(address, root) + "/driver");
  if (driver == kVfioDriver) return {};
  return error_while("giving the PCI device %s to %s", address.c_str(), kVfioDriver)
      .set_answer("afterwards %s has it", driver.empty() ? "no driver" : driver.c_str())
      .set_cure("see the kernel's log for why (dmesg): there may be no IOMMU, or the module %s is "
                "not loaded",
                kVfioDriver);
}

}  // namespace bedplate
