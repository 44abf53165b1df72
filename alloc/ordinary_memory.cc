#include "alloc/ordinary_memory.h"

#include <cerrno>
#include <cstdint>

#include <sys/mman.h>

#include "alloc/confined_heap.h"
#include "pinned_pool/layout.h"
#include "platform/log.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint64_t kWantedBytes = 64 * kGiB;
constexpr uint64_t kNeededBytes = 16 * kMiB;

// A hint: above the pool and below the 20 TiB that mimalloc's map of its segments covers.
constexpr uintptr_t kWantedAddress = 18 * kTiB;
static_assert(kWantedAddress >= kPoolBase + kPoolSpanBytes);

}  // namespace

std::span<std::byte> reserve_ordinary_memory() noexcept {
  // Halves the size until it fits: limits on address space (ulimit -v) and strict overcommit count
  // all of it.
  for (uint64_t bytes = kWantedBytes; bytes >= kNeededBytes; bytes /= 2) {
    void* mapped = mmap(reinterpret_cast<void*>(kWantedAddress), bytes + kHeapGranularityBytes,
                        PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) continue;
    const uintptr_t aligned = align_up(reinterpret_cast<uintptr_t>(mapped), kHeapGranularityBytes);
    return {reinterpret_cast<std::byte*>(aligned), bytes};
  }
  stop_with(
      error_from_errno("reserving %s of address space for malloc", format_bytes(kNeededBytes).text)
          .set_cure("raise the limit on address space: ulimit -v unlimited"));
}

}  // namespace bedplate
