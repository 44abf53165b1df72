// Tested by tests/guest/nvme_test.py.
#include "transport/nvme/nvme_device.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>

#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace bedplate {
namespace {

constexpr uint32_t kClassNvme = 0x010802;
constexpr uint64_t kRegistersBytesMin = 2 * 4096;  // with the first doorbells
constexpr int kCapabilityCountMax = 48;
// Of an entry of the MSI-X table.
constexpr uint64_t kVectorControl = 12;
constexpr uint32_t kMasked = 1;

// False: the system's refusal, as errno says.
bool region_of(int device, uint32_t index, vfio_region_info* info) noexcept {
  *info = {};
  info->argsz = sizeof *info;
  info->index = index;
  return ioctl(device, VFIO_DEVICE_GET_REGION_INFO, info) == 0;
}

}  // namespace

Result<void> NvmeDevice::open(Fd device, const std::string& address) {
  device_ = std::move(device);
  vfio_region_info config;
  uint32_t class_word = 0;
  bool is_good = region_of(device_.number(), VFIO_PCI_CONFIG_REGION_INDEX, &config);
  config_offset_ = config.offset;
  is_good = is_good && read_config(PCI_CLASS_REVISION, &class_word, sizeof class_word);
  if (is_good && class_word >> 8 != kClassNvme) {
    Error error;
    error.set_doing("looking at the PCI device %s", address.c_str());
    error.set_answer("it is no NVMe drive: its class is %06x", class_word >> 8);
    close();
    return error.set_cure("name one (lspci -D says which: Non-Volatile memory controller)");
  }
  interrupt_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  request_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  is_good = is_good && interrupt_.is_open() && request_.is_open() &&
            map_bar(VFIO_PCI_BAR0_REGION_INDEX, &registers_mapping_);
  if (is_good && registers_mapping_.bytes < kRegistersBytesMin) {
    errno = ENXIO;
    is_good = false;
  }
  is_good =
      is_good && set_event(VFIO_PCI_MSIX_IRQ_INDEX, interrupt_.number()) && find_interrupt_table();
  if (!is_good) {
    const Error error = error_from_errno("mapping the registers of the NVMe drive %s, and its "
                                         "interrupt",
                                         address.c_str());
    close();
    return Error(error).set_cure("the kernel's own messages may say more");
  }
  // Kernels before 4.0 never ask.
  (void)set_event(VFIO_PCI_REQ_IRQ_INDEX, request_.number());
  registers = static_cast<volatile std::byte*>(registers_mapping_.address);
  registers_bytes = registers_mapping_.bytes;
  allow_interrupts(false);
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
  // Registers answer once the device has its memory on.
  uint16_t command = 0;
  if (!read_config(PCI_COMMAND, &command, sizeof command)) return false;
  command |= PCI_COMMAND_MEMORY;
  return pwrite(device_.number(), &command, sizeof command,
                static_cast<off_t>(config_offset_) + PCI_COMMAND) == sizeof command;
}

// By the capability MSI-X, which says in which BAR the table is, and where.
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
    const uint64_t control = (table & PCI_MSIX_TABLE_OFFSET) + kVectorControl;
    if (control + sizeof(uint32_t) > mapping->bytes) break;
    vector_control_ =
        reinterpret_cast<volatile uint32_t*>(static_cast<std::byte*>(mapping->address) + control);
    return true;
  }
  errno = ENXIO;
  return false;
}

bool NvmeDevice::set_event(uint32_t index, int fd) noexcept {
  alignas(vfio_irq_set) std::byte memory[sizeof(vfio_irq_set) + sizeof fd] = {};
  vfio_irq_set set = {};
  set.argsz = sizeof memory;
  set.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
  set.index = index;
  set.count = 1;
  std::memcpy(memory, &set, sizeof set);
  std::memcpy(memory + sizeof set, &fd, sizeof fd);
  return ioctl(device_.number(), VFIO_DEVICE_SET_IRQS, memory) == 0;
}

void NvmeDevice::allow_dma(bool is_allowed) noexcept {
  if (!is_open()) return;
  const uint16_t command = PCI_COMMAND_MEMORY | (is_allowed ? PCI_COMMAND_MASTER : 0);
  // A device that is gone does not take it, and reaches no memory.
  (void)!pwrite(device_.number(), &command, sizeof command,
                static_cast<off_t>(config_offset_) + PCI_COMMAND);
}

void NvmeDevice::allow_interrupts(bool is_allowed) noexcept {
  if (vector_control_ != nullptr) *vector_control_ = is_allowed ? 0 : kMasked;
}

void NvmeDevice::close() noexcept {
  vector_control_ = nullptr;
  registers = nullptr;
  for (Mapping* mapping : {&registers_mapping_, &table_mapping_}) {
    if (mapping->address != nullptr) munmap(mapping->address, mapping->bytes);
    *mapping = {};
  }
  device_.close();
}

}  // namespace bedplate
