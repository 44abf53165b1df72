#include "pinned_pool/no_way_back.h"

#include <cerrno>
#include <cstdio>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pinned_pool/pinned_pool.h"
#include "platform/assert.h"
#include "platform/file.h"
#include "platform/memfd.h"

#ifndef __NR_mseal
#define __NR_mseal 462  // Linux 6.10; newer than the distribution's headers
#endif

// Defined by alloc/memory_calls.cc, if that is linked.
extern "C" __attribute__((weak)) const char bedplate_memory_calls;

namespace bedplate {
namespace {

constexpr uint32_t kMappingStops = kMappingSealStops | kLibcCallStops | kSeccompStops;
constexpr uint32_t kMoveStops = kPinStops | kLibcCallStops | kSeccompStops;

constexpr WayBack kWaysBack[] = {
    {"munmap", kMappingStops},
    {"mremap", kMappingStops},
    {"mprotect", kMappingStops},
    {"mmap MAP_FIXED", kMappingStops},
    {"remap_file_pages", kMappingStops},
    {"shmat SHM_REMAP", kMappingStops},
    {"shmdt", kKernelStops},  // the pool is no System V segment
    {"brk", kKernelStops},    // nor the program's break
    {"ftruncate", kSizeSealStops},
    {"fallocate PUNCH_HOLE", kWriteSealStops | kLibcCallStops},
    {"madvise REMOVE", kWriteSealStops | kLibcCallStops | kSeccompStops},
    {"madvise DONTNEED", kKernelStops},  // of a shared file it drops the mapping, not the page
    {"madvise FREE", kKernelStops},      // for private memory only
    {"madvise PAGEOUT", kKernelStops},   // refused for locked and for huge pages
    {"process_madvise", kKernelStops},   // as madvise
    // The kernel keeps locked pages, but lets a program drop the lock first.
    {"munlock, then madvise PAGEOUT", kMoveStops},
    {"munlock, then madvise GUARD_INSTALL", kLibcCallStops | kSeccompStops},
    {"move_pages", kMoveStops},
    {"mbind MOVE", kMoveStops},
    {"madvise SOFT_OFFLINE", kMoveStops},
    // The kernel compacts on its own, and moves even locked pages of 4 KiB.
    {"compaction", kPinStops},
};

// Each way back is listed once, with known stoppers; one that every kernel stops has no other.
constexpr bool is_sound() noexcept {
  for (const WayBack& way_back : kWaysBack) {
    if (way_back.stoppers == 0 || way_back.stoppers >= 2 * kSeccompStops) return false;
    if ((way_back.stoppers & kKernelStops) != 0 && way_back.stoppers != kKernelStops) return false;
    for (const WayBack* other = kWaysBack; other != &way_back; ++other) {
      if (std::string_view(other->name) == way_back.name) return false;
    }
  }
  return true;
}
static_assert(is_sound());

}  // namespace

std::span<const WayBack> all_ways_back() noexcept { return kWaysBack; }

WayBackState state_of(const WayBack& way_back, uint32_t stoppers) noexcept {
  const uint32_t in_force = way_back.stoppers & (stoppers | kKernelStops);
  if ((in_force & ~static_cast<uint32_t>(kLibcCallStops)) != 0) return WayBackState::kStopped;
  return in_force != 0 ? WayBackState::kStoppedInLibc : WayBackState::kOpen;
}

uint32_t list_ways_back(uint32_t stoppers, WayBackState state, char* text,
                        size_t text_bytes) noexcept {
  BP_ASSERT(text_bytes > 0);
  uint32_t count = 0;
  size_t used = 0;
  text[0] = '\0';
  for (const WayBack& way_back : kWaysBack) {
    if (state_of(way_back, stoppers) != state) continue;
    const int wrote =
        std::snprintf(text + used, text_bytes - used, "%s%s", count > 0 ? ", " : "", way_back.name);
    ++count;
    used += static_cast<size_t>(wrote);
    if (used >= text_bytes) used = text_bytes - 1;
  }
  return count;
}

int seal_against_writers(int fd) noexcept {
  return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0 ? 0 : errno;
}

int seal_against_seals(int fd) noexcept {
  return fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0 ? 0 : errno;
}

int seal_mapping(void* address, uint64_t bytes) noexcept {
  return syscall(__NR_mseal, address, bytes, 0UL) == 0 ? 0 : errno;
}

uint32_t available_stoppers() noexcept {
  uint32_t stoppers = kKernelStops | kSizeSealStops;
  const Fd scratch = make_memfd("scratch");
  if (scratch.is_open() && seal_against_writers(scratch.number()) == 0) {
    stoppers |= kWriteSealStops;
  }
  if (seal_mapping(nullptr, 0) == 0) stoppers |= kMappingSealStops;  // an empty range: no effect
  if (memory_calls_are_intercepted()) stoppers |= kLibcCallStops;
  return stoppers;
}

bool munmap_is_refused() noexcept {
  const PinnedPool& pool = process_pool();
  if (!pool.is_sealed() || state_of(kWaysBack[0], pool.stoppers()) == WayBackState::kOpen)
    return false;
  return munmap(pool.segment(0).address, 4096) == -1 && errno == EPERM;
}

bool memory_calls_are_intercepted() noexcept { return &bedplate_memory_calls != nullptr; }

}  // namespace bedplate
