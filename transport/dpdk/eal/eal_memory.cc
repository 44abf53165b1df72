#include "transport/dpdk/eal/eal_memory.h"

#include <atomic>
#include <cstdint>

#include <sys/mman.h>
#include <sys/types.h>

#include "pinned_pool/layout.h"

namespace bedplate {
namespace {

std::atomic<uintptr_t> memory_begin = 0;
std::atomic<uintptr_t> memory_end = 0;
std::atomic<uintptr_t> used_end = 0;
std::atomic<bool> is_open = false;

bool is_eal_memory(const void* address, size_t bytes) noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const uintptr_t first = memory_begin.load(std::memory_order_acquire);
  const uintptr_t end = memory_end.load(std::memory_order_acquire);
  return begin >= first && begin < end && bytes <= end - begin;
}

}  // namespace

void open_eal_memory(std::span<std::byte> memory) noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  used_end.store(begin, std::memory_order_relaxed);
  memory_begin.store(begin, std::memory_order_release);
  memory_end.store(begin + memory.size(), std::memory_order_release);
  is_open.store(true, std::memory_order_release);
}

void close_eal_memory() noexcept { is_open.store(false, std::memory_order_release); }

size_t eal_memory_used_bytes() noexcept {
  return used_end.load(std::memory_order_relaxed) - memory_begin.load(std::memory_order_relaxed);
}

}  // namespace bedplate

extern "C" {

void* __real_mmap64(void* address, size_t bytes, int rights, int flags, int fd, off64_t offset);
int __real_munmap(void* address, size_t bytes);
int __real_madvise(void* address, size_t bytes, int advice);

void* __wrap_mmap64(void* address, size_t bytes, int rights, int flags, int fd, off64_t offset) {
  using namespace bedplate;
  if (is_open.load(std::memory_order_acquire) && is_eal_memory(address, bytes)) {
    const uintptr_t end = reinterpret_cast<uintptr_t>(address) + bytes;
    if (end > used_end.load(std::memory_order_relaxed)) {
      used_end.store(end, std::memory_order_relaxed);
    }
    return address;
  }
  if ((flags & MAP_FIXED) == 0 && in_pool_range(address)) address = nullptr;
  return __real_mmap64(address, bytes, rights, flags, fd, offset);
}

int __wrap_munmap(void* address, size_t bytes) {
  if (bedplate::is_eal_memory(address, bytes)) return 0;
  return __real_munmap(address, bytes);
}

// EAL would exclude its memory from core dumps; the configuration decides about that.
int __wrap_madvise(void* address, size_t bytes, int advice) {
  if (bedplate::is_eal_memory(address, bytes)) return 0;
  return __real_madvise(address, bytes, advice);
}

}  // extern "C"
