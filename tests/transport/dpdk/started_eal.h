// EAL for tests: started once in the test process, in a permanent pool of its own.
#pragma once

#include <cstddef>
#include <span>

#include "pinned_pool/pinned_pool.h"
#include "tests/support/pool_fixture.h"
#include "transport/dpdk/eal/eal.h"

namespace bedplate::test {

// An address that no other test uses. EAL's memory would be foreign memory in the pool's range, so
// this is beyond it.
inline constexpr uintptr_t kEalPoolBase = kPoolBase + 2 * kPoolSpanBytes;
inline constexpr uint64_t kEalHeapBytes = 96 * kMiB;

// The pool that EAL knows. Its segments stay until the process ends: "dpdk" is EAL's own, and tests
// take memory from "buffers".
struct EalPool {
  PinnedPool pool{kEalPoolBase};
  std::span<std::byte> own;
  std::span<std::byte> buffers;
  std::span<std::byte> left;  // the rest of `buffers`
};

inline constexpr uint64_t kEalBuffersBytes = 48 * kMiB;

inline EalPool& started_eal() {
  static EalPool* const all = [] {
    auto* made = new EalPool;
    const uint64_t bytes = eal_memory_bytes(kEalHeapBytes);
    made->own = made->pool.create_segment("dpdk", bytes, PageSize::k4KiB, 1).take()->memory();
    made->buffers =
        made->pool.create_segment("buffers", kEalBuffersBytes, PageSize::k4KiB, 1).take()->memory();
    made->left = made->buffers;
    EalOptions options;
    options.memory = made->own;
    options.pool = &made->pool;
    options.name = "bedplate-tests";
    const auto started = start_eal(options);
    BP_ASSERT(started.ok());
    return made;
  }();
  return *all;
}

// Takes a part of the buffers for good: pools of mbufs are never destroyed.
inline std::span<std::byte> take_buffers(uint64_t bytes) {
  EalPool& all = started_eal();
  BP_ASSERT(bytes <= all.left.size());
  const std::span<std::byte> taken = all.left.first(bytes);
  all.left = all.left.subspan(bytes);
  return taken;
}

}  // namespace bedplate::test
