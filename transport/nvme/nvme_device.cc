#include "transport/nvme/nvme_device.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>

#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr uint32_t kClassNvme = 0x010802;
constexpr uint64_t kRegistersBytesMin = 2 * 4096;  // includes the first doorbells
constexpr int kCapabilityCountMax = 48;
// Offsets in an entry of the MSI-X table.
constexpr uint64_t kVectorControl = 12;
constexpr uint32_t kEntryWords = 4;
constexpr uint32_t kMasked = 1;

// Returns false if the system refuses; errno says why.
bool region_of(int device, uint32_t index, vfio_region_info* info) noexcept {
  *info = {};
  info->argsz = sizeof *info;
  info->index = index;
  return ioctl(device, VFIO_DEVICE_GET_REGION_INFO, info) == 0;
}

}  // namespace

bool NvmeDevice::is_valid() const noexcept {
  if (!is_open()) {
    return registers == nullptr && vector_controls_ == nullptr &&
           registers_mapping_.address == nullptr && table_mapping_.address == nullptr;
  }
  return registers != nullptr && registers == registers_mapping_.address &&
         registers_bytes >= kRegistersBytesMin && vector_controls_ != nullptr &&
         interrupt_count > 0 && interrupts_.size() == interrupt_count;
}

Result<void> NvmeDevice::open(Fd device, const std::string& address,
                              uint32_t interrupt_count_wanted) {
  BP_ASSERT(!is_open() && device.is_open() && interrupt_count_wanted > 0);
  device_ = std::move(device);
  vfio_region_info config;
  uint32_t class_word = 0;
  bool is_good = region_of(device_.number(), VFIO_PCI_CONFIG_REGION_INDEX, &config);
  config_offset_ = config.offset;
  is_good = is_good && read_config(PCI_CLASS_REVISION, &class_word, sizeof class_word);
  if (is_good && class_word >> 8 != kClassNvme) {
    Error error = error_while("checking the PCI device %s", address.c_str())
                      .set_answer("it is not an NVMe drive: its class is %06x", class_word >> 8);
    close();
    return error.set_cure("name one (lspci -D lists them: Non-Volatile memory controller)");
  }
  request_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  is_good =
      is_good && request_.is_open() && map_bar(VFIO_PCI_BAR0_REGION_INDEX, &registers_mapping_);
  if (is_good && registers_mapping_.bytes < kRegistersBytesMin) {
    errno = ENXIO;
    is_good = false;
  }
  is_good = is_good && make_interrupts(interrupt_count_wanted) && find_interrupt_table();
  if (!is_good) {
    const Error error = error_from_errno("mapping the registers of the NVMe drive %s, and its "
                                         "interrupts",
                                         address.c_str());
    close();
    return Error(error).set_cure("see the kernel's log for more (dmesg)");
  }
  // Kernels before 4.0 have no such interrupt.
  (void)set_events(VFIO_PCI_REQ_IRQ_INDEX, {request_.number()});
  registers = static_cast<volatile std::byte*>(registers_mapping_.address);
  registers_bytes = registers_mapping_.bytes;
  BP_DCHECK_SLOW(is_valid());
  for (uint32_t i = 0; i < interrupt_count; ++i) allow_interrupt(i, false);
  return {};
}

bool NvmeDevice::read_config(uint64_t offset, void* to, uint64_t bytes) const noexcept {
  return pread(device_.number(), to, bytes, static_cast<off_t>(config_offset_ + offset)) ==
         static_cast<ssize_t>(bytes);
}

bool NvmeDevice::map_bar(uint32_t index, Mapping* mapping) noexcept {
  vfio_region_info info;
  if (!region_of(device_.number(), index, &info)) return false;
  void* mapped = mmap(nullptr, info.size, PROT_READ | PROT_WRITE, MAP_SHARED, device_.number(),
                      static_cast<off_t>(info.offset));
  if (mapped == MAP_FAILED) return false;
  *mapping = {mapped, info.size};
  // The registers answer only while the device's memory space is enabled.
  uint16_t command = 0;
  if (!read_config(PCI_COMMAND, &command, sizeof command)) return false;
  command |= PCI_COMMAND_MEMORY;
  return pwrite(device_.number(), &command, sizeof command,
                static_cast<off_t>(config_offset_) + PCI_COMMAND) == sizeof command;
}

// Finds the table's BAR and offset in the MSI-X capability.
bool NvmeDevice::find_interrupt_table() noexcept {
  uint8_t at = 0;
  if (!read_config(PCI_CAPABILITY_LIST, &at, 1)) return false;
  for (int i = 0; at != 0 && i < kCapabilityCountMax; ++i) {
    uint8_t head[2] = {};
    if (!read_config(at, head, sizeof head)) return false;
    if (head[0] != PCI_CAP_ID_MSIX) {
      at = head[1];
      continue;
    }
    uint32_t table = 0;
    if (!read_config(uint64_t{at} + PCI_MSIX_TABLE, &table, sizeof table)) return false;
    const uint32_t bar = table & PCI_MSIX_TABLE_BIR;
    const Mapping* mapping = &registers_mapping_;
    if (bar != 0) {
      if (!map_bar(VFIO_PCI_BAR0_REGION_INDEX + bar, &table_mapping_)) return false;
      mapping = &table_mapping_;
    }
    const uint64_t first = table & PCI_MSIX_TABLE_OFFSET;
    BP_DCHECK(mapping->address != nullptr);
    if (first + interrupt_count * kEntryWords * sizeof(uint32_t) > mapping->bytes) break;
    vector_controls_ = reinterpret_cast<volatile uint32_t*>(
        static_cast<std::byte*>(mapping->address) + first + kVectorControl);
    return true;
  }
  errno = ENXIO;
  return false;
}

// Makes all at once: the kernel gives a device no further interrupts later.
bool NvmeDevice::make_interrupts(uint32_t count_wanted) {
  vfio_irq_info info = {};
  info.argsz = sizeof info;
  info.index = VFIO_PCI_MSIX_IRQ_INDEX;
  if (ioctl(device_.number(), VFIO_DEVICE_GET_IRQ_INFO, &info) != 0) return false;
  interrupt_count = std::min(count_wanted, info.count);
  if (interrupt_count == 0) {
    errno = ENXIO;
    return false;
  }
  std::vector<int> numbers;
  for (uint32_t i = 0; i < interrupt_count; ++i) {
    interrupts_.push_back(Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
    if (!interrupts_.back().is_open()) return false;
    numbers.push_back(interrupts_.back().number());
  }
  // The table may have more entries than the machine has interrupts left.
  while (!set_events(VFIO_PCI_MSIX_IRQ_INDEX, numbers)) {
    if (interrupt_count == 1) return false;
    numbers.pop_back();
    interrupts_.pop_back();
    --interrupt_count;
  }
  return true;
}

bool NvmeDevice::set_events(uint32_t index, const std::vector<int>& fds) {
  const size_t fds_bytes = fds.size() * sizeof fds[0];
  vfio_irq_set set = {};
  set.argsz = static_cast<uint32_t>(sizeof set + fds_bytes);
  set.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
  set.index = index;
  set.count = static_cast<uint32_t>(fds.size());
  std::vector<std::byte> memory(set.argsz);
  std::memcpy(memory.data(), &set, sizeof set);
  std::memcpy(memory.data() + sizeof set, fds.data(), fds_bytes);
  return ioctl(device_.number(), VFIO_DEVICE_SET_IRQS, memory.data()) == 0;
}

void NvmeDevice::allow_dma(bool is_allowed) noexcept {
  if (!is_open()) return;
  const uint16_t command = PCI_COMMAND_MEMORY | (is_allowed ? PCI_COMMAND_MASTER : 0);
  // The write fails if the device is gone, which then reaches no memory anyway.
  (void)!pwrite(device_.number(), &command, sizeof command,
                static_cast<off_t>(config_offset_) + PCI_COMMAND);
}

void NvmeDevice::allow_interrupt(uint32_t index, bool is_allowed) noexcept {
  BP_DCHECK(is_open() && index < interrupt_count);
  vector_controls_[index * kEntryWords] = is_allowed ? 0 : kMasked;
}

void NvmeDevice::close() noexcept {
  vector_controls_ = nullptr;
  registers = nullptr;
  for (Mapping* mapping : {&registers_mapping_, &table_mapping_}) {
    if (mapping->address != nullptr) munmap(mapping->address, mapping->bytes);
    *mapping = {};
  }
  device_.close();
  BP_DCHECK_SLOW(is_valid());
}

}  // namespace bedplate
