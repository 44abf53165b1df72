// EAL, the part of DPDK that all of its ports stand on: started once, from the configuration, in
// memory of the pool.
//
// It takes no hugepages, writes no file (but for its telemetry, when that is on) and has no second
// process. Its heap lies in one carve (eal_memory.h). start_eal() makes all memory of the pool
// known to it, so that drivers find the addresses of any buffer. EAL maps its own carve for
// devices; others map the rest of the pool.
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
  const PinnedPool* pool = nullptr;  // its segments for devices are made known
  std::string name = "bedplate";     // of its folder, if telemetry is on
  std::span<const int> shard_cpus;   // cores that its threads keep off
  bool has_telemetry = false;        // a socket, two threads; one more for each that asks
};

// The alignment of EAL's carve.
inline constexpr size_t kEalMemoryAlignment = size_t{16} << 20;

// The size of a carve for a heap of `heap_bytes` and EAL's tables, in whole hugepages.
uint64_t eal_memory_bytes(uint64_t heap_bytes) noexcept;

// Returns what this machine lacks for EAL, or nullptr. May be called before start_eal().
const char* eal_is_impossible() noexcept;

// Starts EAL. The calling thread becomes its main one, and has its cores again when this returns.
// Threads: the main thread, once; before the seal: it allocates, and starts threads.
// Errors (kSystem): in EAL's words.
Result<void> start_eal(const EalOptions& options);
bool eal_is_started() noexcept;

// The names of EAL's threads, "eal-intr-thread, ...", and the cores that they may run on. Static.
const char* eal_threads() noexcept;

// Registers the calling thread with EAL, so that pools keep a cache for it. Threads: a shard's,
// once. Errors: there are too many.
Result<void> enter_eal() noexcept;

// Bytes of EAL's heap in use now.
uint64_t eal_heap_used_bytes() noexcept;

}  // namespace bedplate
