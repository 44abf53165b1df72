// A pool for tests, separate from the pool of the process.
//
// PinnedPool deliberately has no function that gives memory back. This class unmaps the segments
// itself, so that each test begins with the same empty range. A sealed pool cannot be unmapped:
// seal only in a forked child.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include "pinned_pool/pinned_pool.h"
#include "platform/sanitized_build.h"

namespace bedplate::testing {

// Behind the pool's range. ThreadSanitizer leaves no addresses there: before the range.
#ifdef BP_THREAD_SANITIZER
inline constexpr uintptr_t kTestPoolBase = 0x7e80'0000'0000;
#else
inline constexpr uintptr_t kTestPoolBase = kPoolBase + kPoolSpanBytes;
#endif
static_assert(kTestPoolBase % kRegionBytes == 0);

// Inside the pool's range, far behind the segments of the process: for code that accepts only
// addresses in the range.
inline constexpr uintptr_t kTestPoolBaseInRange = kPoolBase + 200 * kRegionBytes;

class TestPool {
 public:
  explicit TestPool(uintptr_t base = kTestPoolBase) noexcept : pool_(base) {}
  TestPool(const TestPool&) = delete;
  TestPool& operator=(const TestPool&) = delete;
  ~TestPool() {
    for (uint32_t i = 0; i < pool_.segment_count(); ++i) {
      munmap(pool_.segment(i).address, pool_.segment(i).bytes);
      if (!pool_.segment(i).is_private()) close(pool_.segment(i).memfd);
    }
  }

  // A new segment, which may be lent and exposed.
  std::span<std::byte> memory(uint64_t bytes) {
    return pool_.create_segment("memory", bytes, PageSize::k4KiB, 1).take()->memory();
  }

  PinnedPool& operator*() noexcept { return pool_; }
  PinnedPool* operator->() noexcept { return &pool_; }

 private:
  PinnedPool pool_;
};

}  // namespace bedplate::testing
