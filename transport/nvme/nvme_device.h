// An NVMe drive as a PCI device: its registers, its one interrupt, its way to memory, by VFIO.
//
// The interrupt is masked where the specification has it masked, in the device's own table of
// MSI-X: so a shard that polls costs the kernel nothing, and what came while it was masked rings
// once it is not. The kernel, too, tells by an interrupt that it wants the device back.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>

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

  // `device`: opened in a container of VFIO. Its interrupt is masked. Errors: it is no NVMe
  // drive; the system's.
  Result<void> open(Fd device, const std::string& address);
  bool is_open() const noexcept { return device_.is_open(); }
  // Its registers are gone then; the kernel resets it.
  void close() noexcept;

  void allow_dma(bool is_allowed) noexcept override;
  void allow_interrupts(bool is_allowed) noexcept;
  // eventfds: something has completed; the kernel wants the device back.
  int interrupt_fd() const noexcept { return interrupt_.number(); }
  int request_fd() const noexcept { return request_.number(); }

 private:
  struct Mapping {
    void* address = nullptr;
    uint64_t bytes = 0;
  };
  bool read_config(uint64_t offset, void* to, uint64_t bytes) const noexcept;
  bool map_bar(uint32_t index, Mapping* mapping) noexcept;
  bool find_interrupt_table() noexcept;
  bool set_event(uint32_t index, int fd) noexcept;

  Fd device_;
  Fd interrupt_;
  Fd request_;
  uint64_t config_offset_ = 0;
  Mapping registers_mapping_;
  Mapping table_mapping_;  // where the table is in another BAR
  volatile uint32_t* vector_control_ = nullptr;
};

}  // namespace bedplate
