// An NVMe drive as a PCI device, by VFIO: its registers, its interrupts, its access to memory.
//
// Interrupts are masked in the device's MSI-X table, as the specification says. So masking takes no
// system call, and an interrupt that came while masked is delivered on unmasking. The kernel also
// uses an interrupt to ask for the device back.
//
// Invariants, checked by is_valid(): 1. While it is open, its registers are mapped, including the
// first doorbells, and so is its MSI-X table; each interrupt has an eventfd. 2. Once it is closed,
// nothing of it is mapped.
// Threads: one at a time; allow_interrupt(): one at a time for each interrupt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/file.h"
#include "platform/result.h"
#include "transport/nvme/nvme_controller.h"

namespace bedplate {

class NvmeDevice final : public NvmePort {
 public:
  NvmeDevice() = default;
  NvmeDevice(const NvmeDevice&) = delete;
  NvmeDevice& operator=(const NvmeDevice&) = delete;
  ~NvmeDevice() override { close(); }

  // Takes `device`, which a VFIO container opened. Makes as many of `interrupt_count_wanted`
  // interrupts as possible (interrupt_count), masked. Requires: interrupt_count_wanted > 0; it was
  // not open before. Errors: it is not an NVMe drive; the system's. After an error it is closed.
  Result<void> open(Fd device, const std::string& address, uint32_t interrupt_count_wanted);
  bool is_open() const noexcept { return device_.is_open(); }
  // Unmaps the registers; the kernel resets the device. The eventfds stay open.
  void close() noexcept;

  void allow_dma(bool is_allowed) noexcept override;
  // Unmasks or masks the interrupt. Requires: is_open(); index < interrupt_count.
  void allow_interrupt(uint32_t index, bool is_allowed) noexcept;
  // An eventfd; readable: completions have arrived. Requires: index < interrupt_count.
  int interrupt_fd(uint32_t index) const noexcept {
    BP_DCHECK(index < interrupts_.size());
    return interrupts_[index].number();
  }
  // An eventfd; readable: the kernel wants the device back.
  int request_fd() const noexcept { return request_.number(); }

  bool is_valid() const noexcept;

 private:
  struct Mapping {
    void* address = nullptr;
    uint64_t bytes = 0;
  };
  bool read_config(uint64_t offset, void* to, uint64_t bytes) const noexcept;
  bool map_bar(uint32_t index, Mapping* mapping) noexcept;
  bool find_interrupt_table() noexcept;
  bool make_interrupts(uint32_t count_wanted);
  bool set_events(uint32_t index, const std::vector<int>& fds);

  Fd device_;
  std::vector<Fd> interrupts_;
  Fd request_;
  uint64_t config_offset_ = 0;
  Mapping registers_mapping_;
  Mapping table_mapping_;                         // the table's BAR, if that is not the registers'
  volatile uint32_t* vector_controls_ = nullptr;  // the first; one in each entry
};

}  // namespace bedplate
