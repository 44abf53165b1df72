// An NVMe drive as a PCI device: its registers, its interrupts, its way to memory, by VFIO.
//
// An interrupt is masked in the device's own table of MSI-X, as the specification has it: so a
// shard that polls costs the kernel nothing, and an interrupt that came while it was masked rings
// once it is not. The kernel asks for the device back by an interrupt, too.
//
// Invariants, which is_valid() looks at: 1. While it is open its registers are mapped, with the
// first doorbells, and so is the table of its interrupts, of which each has an eventfd. 2. Once it
// is closed nothing of it is mapped.
// Threads: one at a time; but for allow_interrupt(), of each interrupt one at a time.
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

  // `device`: opened in a container of VFIO. It has as many of `interrupt_count_wanted` (over 0)
  // interrupts as it can (interrupt_count), masked. Errors: it is no NVMe drive; the system's.
  Result<void> open(Fd device, const std::string& address, uint32_t interrupt_count_wanted);
  bool is_open() const noexcept { return device_.is_open(); }
  // Its registers are gone then; the kernel resets it.
  void close() noexcept;

  void allow_dma(bool is_allowed) noexcept override;
  void allow_interrupt(uint32_t index, bool is_allowed) noexcept;
  // eventfds: something has completed; the kernel wants the device back.
  int interrupt_fd(uint32_t index) const noexcept {
    BP_DCHECK(index < interrupts_.size());
    return interrupts_[index].number();
  }
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
  Mapping table_mapping_;                         // where the table is in another BAR
  volatile uint32_t* vector_controls_ = nullptr;  // of the first; they lie an entry apart
};

}  // namespace bedplate
