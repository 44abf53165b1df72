// The registers of an NVMe controller, except the doorbells (nvme_queue_datapath.h).
//
// Invariants, checked by each access: 1. The access is within the registers. 2. The registers are
// not closed. After close() they may be unmapped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/assert.h"

namespace bedplate {

// Threads: the controller's.
class NvmeRegisters {
 public:
  // Requires: `bytes` of registers are mapped at `base` until close().
  void open(volatile std::byte* base, uint64_t bytes) noexcept {
    base_ = base;
    bytes_ = bytes;
  }
  void close() noexcept { base_ = nullptr; }

  uint32_t read32(size_t offset) const noexcept { return at(offset); }
  // Reads two halves, the low one first: every controller supports that. write64() writes two
  // halves, too.
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
