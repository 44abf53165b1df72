// EAL, the part of DPDK that all ports need: started once, from the configuration, in memory of the
// pool.
//
// It takes no hugepages, has no second process, and writes no file except for its telemetry, if
// that is on. Its heap is in one carve (eal_memory.h). start_eal() registers all memory of the pool
// with it, so that drivers find the address of any buffer. EAL maps its own carve for devices; the
// VFIO devices of the runtime map the rest of the pool.
//
// EAL ends with the process: it cannot be started twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "platform/result.h"

namespace bedplate {

class PinnedPool;

struct EalOptions {
  std::span<std::byte> memory;       // the pool's: eal_memory_bytes(), at kEalMemoryAlignment
  const PinnedPool* pool = nullptr;  // start_eal() registers its segments for devices
  std::string name = "bedplate";     // name of its folder, if telemetry is on
  std::span<const int> shard_cpus;   // cores that EAL's threads stay off
  bool has_telemetry = false;        // a socket and two threads; one more thread for each client
};

// The alignment of EAL's carve.
inline constexpr size_t kEalMemoryAlignment = size_t{16} << 20;

// The size of a carve for a heap of `heap_bytes` and EAL's tables, in whole hugepages.
uint64_t eal_memory_bytes(uint64_t heap_bytes) noexcept;

// Returns what this machine lacks for EAL, or nullptr. May be called before start_eal().
const char* eal_is_impossible() noexcept;

// Starts EAL. The calling thread becomes EAL's main thread, and has its cores again on return.
// Threads: the main thread, once; before the seal: it allocates, and starts threads.
// Errors (kSystem): in EAL's words.
Result<void> start_eal(const EalOptions& options);
bool eal_is_started() noexcept;

// The names of EAL's threads, "eal-intr-thread, ...", and the cores that they may run on. Static.
const char* eal_threads() noexcept;

// Registers the calling thread with EAL, so that pools keep a cache for it. Threads: a shard's,
// once.
// Errors: too many threads.
Result<void> enter_eal() noexcept;

// Bytes of EAL's heap in use now.
uint64_t eal_heap_used_bytes() noexcept;

}  // namespace bedplate
