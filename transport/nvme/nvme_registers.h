// The registers of an NVMe controller, but for the doorbells (nvme_queue_datapath.h).
//
// Invariants, which each access checks: 1. It lies within the registers. 2. There is none once they
// are closed: they may be unmapped then.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/assert.h"

namespace bedplate {

// Threads: the controller's.
class NvmeRegisters {
 public:
  // `bytes` of registers lie at `base` until close().
  void open(volatile std::byte* base, uint64_t bytes) noexcept {
    base_ = base;
    bytes_ = bytes;
  }
  void close() noexcept { base_ = nullptr; }

  uint32_t read32(size_t offset) const noexcept { return at(offset); }
  // By halves, which every controller takes; so does write64().
  uint64_t read64(size_t offset) const noexcept {
    return read32(offset) | uint64_t{read32(offset + 4)} << 32;
  }
  void write32(size_t offset, uint32_t value) noexcept { at(offset) = value; }
  void write64(size_t offset, uint64_t value) noexcept {
    write32(offset, static_cast<uint32_t>(value));
    write32(offset + 4, static_cast<uint32_t>(value >> 32));
  }

 private:
  volatile uint32_t& at(size_t offset) const noexcept {
    BP_DCHECK(base_ != nullptr && offset + sizeof(uint32_t) <= bytes_);
    return *reinterpret_cast<volatile uint32_t*>(base_ + offset);
  }

  volatile std::byte* base_ = nullptr;  // nullptr: closed
  uint64_t bytes_ = 0;
};

}  // namespace bedplate
